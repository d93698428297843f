// schedule/zb-v: two stages a rank in the shape of a V, with weight gradients filling what would be idle. No
// bubble but that of reaching the last rank, within the memory of 1F1B (Qi et al. 2023, "Zero Bubble Pipeline
// Parallelism", ZB-V).
//
// A microbatch goes down the ranks at their first stages and comes back up at their second ones, and its
// gradient takes the same way again.
#include "tenon_sdk/schedule.hpp"

namespace {

using namespace tenon::sdk;

enum Leg : uint8_t { kDown, kUp };  // the first stage of a rank and the second

// The order of a rank's forwards and input gradients, for `microbatches` of them.
class RankOrder {
 public:
  RankOrder(const ScheduleConfig& config, int32_t rank, int32_t microbatches)
      : microbatches_(microbatches), stages_{rank, config.stages - 1 - rank} {}

  void forward(Leg leg) { rows_.push_back({TENON_ROW_FORWARD, stages_[leg], forwards_[leg]++, 0}); }
  void input_grad(Leg leg) { rows_.push_back({TENON_ROW_INPUT_GRAD, stages_[leg], input_grads_[leg]++, 0}); }
  bool has_forward(Leg leg) const { return forwards_[leg] < microbatches_; }
  RankRows take() { return std::move(rows_); }

 private:
  int32_t microbatches_;
  int32_t stages_[2];
  int32_t forwards_[2] = {0, 0};
  int32_t input_grads_[2] = {0, 0};
  RankRows rows_;
};

// Needs at least 2 * ranks - 1 microbatches.
RankRows order_of(const ScheduleConfig& config, int32_t rank, int32_t microbatches) {
  const int32_t to_turn = config.ranks - rank;  // ranks from here to where the V turns, both included
  RankOrder order(config, rank, microbatches);
  // Warm-up: downwards until the first microbatch comes back, then both ways until its gradient does.
  for (int32_t i = 0; i < 2 * to_turn - 1; ++i) order.forward(kDown);
  for (int32_t i = 0; i < rank; ++i) {
    order.forward(kUp);
    order.forward(kDown);
  }
  for (int32_t i = 0; i < to_turn; ++i) {
    order.forward(kUp);
    order.input_grad(kUp);
  }
  // Steady: one forward and one input gradient in turn, on both legs in turn.
  while (order.has_forward(kUp)) {
    if (order.has_forward(kDown)) order.forward(kDown);
    order.input_grad(kDown);
    order.forward(kUp);
    order.input_grad(kUp);
  }
  for (int32_t i = 0; i < rank; ++i) {
    order.input_grad(kDown);
    order.input_grad(kUp);
  }
  for (int32_t i = 0; i < to_turn; ++i) order.input_grad(kDown);
  return order.take();
}

ScheduleRows rows(const ScheduleConfig& config) {
  require_stages_per_rank(config, 2, "");
  const int32_t microbatches = std::max(config.microbatches, 2 * config.ranks - 1);
  ScheduleRows order;
  for (int32_t rank = 0; rank < config.ranks; ++rank) order.push_back(order_of(config, rank, microbatches));
  return fill_weight_grads(config, cut_to_microbatches(config, std::move(order)), 2 * config.ranks);
}

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = schedule_plugin<v_owner, rows>(
    "schedule/zb-v", "0.1.0", "Pipeline schedule: stages in a V, weight gradients fill the bubble (ZB-V)");
