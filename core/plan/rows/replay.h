// Runs rows, each rank in its order, as far as they can: what checks and simulated times have in common.
#pragma once

#include <cstdint>

#include "plan/rows/rows.h"

namespace tenon {

// A place among the rows: of_rank[rank][row].
struct RowRef {
  int rank = 0;
  int row = 0;
  bool operator==(const RowRef&) const = default;
};

// Time that a row takes, in any unit, the same for all stages. A backward takes both gradients' time.
struct RowCost {
  int64_t forward = 1;
  int64_t input_grad = 1;
  int64_t weight_grad = 1;
  int64_t of(RowKind kind) const;
};

struct RowTime {
  int64_t start = 0;
  int64_t end = 0;
};

// What rows give and need. A backward gives both gradients, so `kind` is never backward here.
struct RowResult {
  RowKind kind = RowKind::forward;
  int stage = 0;
  int microbatch = 0;
};
std::vector<RowResult> given_by(const Row& row);
std::vector<RowResult> needed_by(const Row& row, int stages);

// Who gives each result. Stages and microbatches of all rows must be in range.
class RowGivers {
 public:
  explicit RowGivers(const Rows& rows);
  // The first row that gives it; rank -1: none does.
  RowRef of(const RowResult& result) const { return givers_[index(result)]; }
  size_t index(const RowResult& result) const;
  size_t size() const { return givers_.size(); }

 private:
  int microbatches_;
  std::vector<RowRef> givers_;
};

// The index behind the last row that runs interleaved with the one at `first`.
size_t end_of_block(const std::vector<Row>& rows, size_t first);

struct RowReplay {
  std::vector<std::vector<RowTime>> of_rank;  // of the rows that ran
  bool complete = true;                       // else a rank waits for ever, at its first row without a time
};

// Needs rows in which each result is given once and interleaved rows are neighbours; costs above 0. Rows that
// run interleaved start together, when all that they need is there, take the sum of their times, and end
// together.
RowReplay replay(const Rows& rows, const RowGivers& givers, const RowCost& cost);

}  // namespace tenon
