// tenon_sdk/schedule.hpp - writing a pipeline schedule (tenon/schedule.h) as one pure function from the
// config to the rows of each rank. Header-only.
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "tenon/schedule.h"
#include "tenon_sdk/plugin.hpp"

namespace tenon::sdk {

using ScheduleConfig = tenon_schedule_config;
using RankRows = std::vector<tenon_row>;     // of one rank, in its order
using ScheduleRows = std::vector<RankRows>;  // one per rank
using RowsFunction = ScheduleRows(const ScheduleConfig&);
using OwnerFunction = int32_t(const ScheduleConfig&, int32_t stage);

// Stage s on rank s mod ranks: a microbatch goes round the ranks, once or several times.
inline int32_t round_owner(const ScheduleConfig& config, int32_t stage) { return stage % config.ranks; }
// Stages i and 2 * ranks - 1 - i on rank i: a microbatch goes down the ranks and comes back up.
inline int32_t v_owner(const ScheduleConfig& config, int32_t stage) {
  return std::min(stage, config.stages - 1 - stage);
}

// Refuses all but `per_rank` stages on each rank. `hint` ends the message: what else the user could choose.
inline void require_stages_per_rank(const ScheduleConfig& config, int32_t per_rank, const std::string& hint) {
  if (config.stages == per_rank * config.ranks) return;
  throw Failure(TENON_E_ARGUMENT,
                std::to_string(config.stages) + " stages on " + std::to_string(config.ranks) +
                    " pipeline ranks, but this schedule runs " + std::to_string(per_rank) +
                    " on each: set stages to " + std::to_string(per_rank * config.ranks) + hint);
}

// `warmup` forwards, then one backward and one forward in turn while there are any, then the backwards that
// are left. The lists have equal lengths.
inline RankRows one_forward_one_backward(size_t warmup, const RankRows& forwards, const RankRows& backwards) {
  warmup = std::min(warmup, forwards.size());
  RankRows rows(forwards.begin(), forwards.begin() + static_cast<ptrdiff_t>(warmup));
  for (size_t i = 0; i < backwards.size(); ++i) {
    if (warmup + i < forwards.size()) rows.push_back(forwards[warmup + i]);
    rows.push_back(backwards[i]);
  }
  return rows;
}

// Without the rows of microbatches that the config does not have. A schedule whose pattern needs a number of
// microbatches is made for that many, and cut: what remains is in an order that can run, because microbatches
// depend on none but themselves. A row that has lost its partner runs alone.
inline ScheduleRows cut_to_microbatches(const ScheduleConfig& config, ScheduleRows rows) {
  for (RankRows& rank : rows) {
    std::erase_if(rank, [&](const tenon_row& row) { return row.microbatch >= config.microbatches; });
    for (size_t i = 0; i < rank.size(); ++i) {
      const auto partner = [&](size_t j) { return j < rank.size() && rank[j].overlap == rank[i].overlap; };
      if (rank[i].overlap > 0 && !partner(i - 1) && !partner(i + 1)) rank[i].overlap = 0;
    }
  }
  return rows;
}

// Adds a weight gradient for each input gradient of an order of FORWARD and INPUT_GRAD rows, where it costs
// least: all work taking one unit of time and transfers none, a rank runs the oldest weight gradient that it
// owes whenever its next row has to wait, be it for another rank or because `limit` activations (of one
// microbatch at one stage, kept from the forward to the weight gradient) are in its memory already.
// The order must be one that can run, with no more than `limit` forwards ahead of the input gradients.
class WeightGradFiller {
 public:
  WeightGradFiller(const ScheduleConfig& config, ScheduleRows order, int32_t limit)
      : stages_(config.stages), microbatches_(config.microbatches), limit_(limit), order_(std::move(order)) {
    const size_t work = static_cast<size_t>(stages_) * static_cast<size_t>(microbatches_);
    forward_end_.assign(work, kNever);
    input_grad_end_.assign(work, kNever);
    ranks_.resize(order_.size());
  }

  ScheduleRows fill() {
    ScheduleRows out(order_.size());
    size_t left = 0;
    for (const RankRows& rows : order_) {
      left += rows.size() + static_cast<size_t>(std::count_if(rows.begin(), rows.end(), is_input_grad));
    }
    for (int64_t now = 0; left > 0; ++now) {
      const size_t before = left;
      for (size_t rank = 0; rank < order_.size(); ++rank) left -= step(rank, now, out[rank]) ? 1 : 0;
      if (left == before) throw Failure(TENON_E_INTERNAL, "the order of forwards and backwards cannot run");
    }
    return out;
  }

 private:
  static constexpr int64_t kNever = INT64_MAX;
  struct Rank {
    size_t next = 0;             // row of the order
    int32_t activations = 0;     // in memory
    std::deque<tenon_row> owed;  // weight gradients, oldest first
  };

  static bool is_input_grad(const tenon_row& row) { return row.kind == TENON_ROW_INPUT_GRAD; }
  size_t index(int32_t stage, const tenon_row& row) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(microbatches_) +
           static_cast<size_t>(row.microbatch);
  }

  bool ready(const Rank& rank, const tenon_row& row, int64_t now) const {
    if (!is_input_grad(row)) {
      return rank.activations < limit_ && (row.stage == 0 || forward_end_[index(row.stage - 1, row)] <= now);
    }
    return forward_end_[index(row.stage, row)] <= now &&
           (row.stage == stages_ - 1 || input_grad_end_[index(row.stage + 1, row)] <= now);
  }

  // One unit of time of a rank; whether it had anything to do. What ends now is there for others from the
  // next unit on, so the order in which ranks are visited does not matter.
  bool step(size_t index_of_rank, int64_t now, RankRows& out) {
    Rank& rank = ranks_[index_of_rank];
    const RankRows& order = order_[index_of_rank];
    if (rank.next < order.size() && ready(rank, order[rank.next], now)) {
      const tenon_row row = order[rank.next++];
      (is_input_grad(row) ? input_grad_end_ : forward_end_)[index(row.stage, row)] = now + 1;
      if (is_input_grad(row)) {
        rank.owed.push_back({TENON_ROW_WEIGHT_GRAD, row.stage, row.microbatch, 0});
      } else {
        ++rank.activations;
      }
      out.push_back(row);
      return true;
    }
    if (rank.owed.empty()) return false;
    out.push_back(rank.owed.front());
    rank.owed.pop_front();
    --rank.activations;
    return true;
  }

  int32_t stages_;
  int32_t microbatches_;
  int32_t limit_;
  ScheduleRows order_;
  std::vector<int64_t> forward_end_, input_grad_end_;  // by stage and microbatch
  std::vector<Rank> ranks_;
};

inline ScheduleRows fill_weight_grads(const ScheduleConfig& config, ScheduleRows order, int32_t limit) {
  return WeightGradFiller(config, std::move(order), limit).fill();
}

// The slots of tenon_schedule made from two functions of the config.
template <OwnerFunction* kOwner, RowsFunction* kRows>
struct ScheduleTable {
  static int32_t owner(const tenon_schedule_config* config, int32_t stage) noexcept {
    const bool whole = config != nullptr && TENON_HAS(config, tenon_schedule_config, reserved);
    return whole ? kOwner(*config, stage) : -1;
  }
  // Nothing is emitted unless all rows could be made.
  static tenon_code rows(const tenon_schedule_config* config,
                         void (*emit)(void* arg, int32_t rank, const tenon_row* row), void* arg,
                         tenon_error* error) noexcept {
    return guard(error, [&] {
      const ScheduleRows all = kRows(read(config, TENON_END(tenon_schedule_config, reserved)));
      for (size_t rank = 0; rank < all.size(); ++rank) {
        for (const tenon_row& row : all[rank]) emit(arg, static_cast<int32_t>(rank), &row);
      }
    });
  }
  static constexpr tenon_schedule kTable = {sizeof(tenon_schedule), 0, owner, rows};
};

// What a plugin that is a schedule and nothing else exports. `owner` must be plain arithmetic: it may not
// throw.
template <OwnerFunction* kOwner, RowsFunction* kRows>
constexpr tenon_plugin schedule_plugin(const char* id, const char* version, const char* description) {
  return plugin_with<TENON_SCHEDULE, ScheduleTable<kOwner, kRows>::kTable>(id, version, description);
}

}  // namespace tenon::sdk
