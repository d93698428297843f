// schedule/dualpipe-v: DualPipe cut in half (DeepSeek-AI 2025). Two stages a rank in the shape of a V; in the
// steady state a forward of one leg overlaps a backward of the other, so that the transfers of each (between
// stages, and of experts inside them) hide behind the other's computation.
//
// The eight steps are those of the published schedule. Weight gradients are apart from input gradients only
// where that shortens the bubble, at both ends.
#include "tenon_sdk/schedule.hpp"

namespace {

using namespace tenon::sdk;

enum Leg : uint8_t { kDown, kUp };  // the first stage of a rank and the second

class RankOrder {
 public:
  RankOrder(const ScheduleConfig& config, int32_t rank) : stages_{rank, config.stages - 1 - rank} {}

  void forward(Leg leg) { add(TENON_ROW_FORWARD, leg, forwards_[leg]++); }
  void backward(Leg leg) { add(TENON_ROW_BACKWARD, leg, backwards_[leg]++); }
  // The weight gradient is owed: see weight_grad().
  void input_grad(Leg leg) {
    add(TENON_ROW_INPUT_GRAD, leg, backwards_[leg]++);
    owed_.push_back({TENON_ROW_WEIGHT_GRAD, rows_.back().stage, rows_.back().microbatch, 0});
  }
  void input_grad_or_backward(bool apart, Leg leg) { apart ? input_grad(leg) : backward(leg); }
  // The oldest that is owed.
  void weight_grad() {
    rows_.push_back(owed_.front());
    owed_.pop_front();
  }
  // A forward and a backward that run interleaved.
  void pair(Leg forward_leg, Leg backward_leg) {
    overlap_ = ++pairs_;
    forward(forward_leg);
    backward(backward_leg);
    overlap_ = 0;
  }
  RankRows take() { return std::move(rows_); }

 private:
  void add(uint32_t kind, Leg leg, int32_t microbatch) {
    rows_.push_back({kind, stages_[leg], microbatch, overlap_});
  }
  int32_t stages_[2];
  int32_t forwards_[2] = {0, 0};
  int32_t backwards_[2] = {0, 0};
  int32_t pairs_ = 0;
  int32_t overlap_ = 0;
  RankRows rows_;
  std::deque<tenon_row> owed_;
};

// Steps 1 to 3: fill the V.
void warm_up(RankOrder& order, int32_t rank, int32_t behind) {
  for (int32_t i = 0; i < 2 * behind; ++i) order.forward(kDown);
  for (int32_t i = 0; i < rank + 1; ++i) {
    order.forward(kDown);
    order.forward(kUp);
  }
  for (int32_t i = 0; i < behind; ++i) {
    order.input_grad(kUp);
    order.weight_grad();
    order.forward(kUp);
  }
}

// Step 4: forwards of one leg with backwards of the other.
void steady(RankOrder& order, int32_t pairs, bool last_rank) {
  for (int32_t i = 0; i < pairs; ++i) {
    if (i == 0 && last_rank) {  // not overlapped: the rank before waits for the gradient
      order.forward(kDown);
      order.backward(kUp);
    } else {
      order.pair(kDown, kUp);
    }
    order.pair(kUp, kDown);
  }
}

// Steps 5 to 8: empty the V. The second half of step 6 and all that follows have weight gradients apart.
void cool_down(RankOrder& order, int32_t rank, int32_t behind) {
  for (int32_t i = 0; i < behind; ++i) {
    order.backward(kUp);
    order.pair(kUp, kDown);
  }
  for (int32_t i = 0; i < 2 * (rank + 1); ++i) {
    order.input_grad_or_backward(i >= rank + 1, i % 2 == 0 ? kUp : kDown);
  }
  for (int32_t i = 0; i < behind; ++i) {
    order.weight_grad();
    order.input_grad(kDown);
  }
  for (int32_t i = 0; i < rank + 1; ++i) order.weight_grad();
}

// The published schedule needs at least 2 * ranks microbatches.
ScheduleRows rows(const ScheduleConfig& config) {
  require_stages_per_rank(config, 2, "");
  const int32_t microbatches = std::max(config.microbatches, 2 * config.ranks);
  ScheduleRows out;
  for (int32_t rank = 0; rank < config.ranks; ++rank) {
    const int32_t behind = config.ranks - 1 - rank;
    RankOrder order(config, rank);
    warm_up(order, rank, behind);
    steady(order, microbatches - 2 * config.ranks + rank + 1, behind == 0);
    cool_down(order, rank, behind);
    out.push_back(order.take());
  }
  return cut_to_microbatches(config, std::move(out));
}

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = schedule_plugin<v_owner, rows>(
    "schedule/dualpipe-v", "0.1.0",
    "Pipeline schedule: stages in a V, forwards overlap backwards (DualPipe-V)");
