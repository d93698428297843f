#include "plan/rows/replay.h"

#include <algorithm>

#include "base/assert.h"

namespace tenon {

int64_t RowCost::of(RowKind kind) const {
  switch (kind) {
    case RowKind::forward: return forward;
    case RowKind::input_grad: return input_grad;
    case RowKind::weight_grad: return weight_grad;
    case RowKind::backward: return input_grad + weight_grad;
  }
  return 0;
}

std::vector<RowResult> given_by(const Row& row) {
  if (row.kind != RowKind::backward) return {{row.kind, row.stage, row.microbatch}};
  return {{RowKind::input_grad, row.stage, row.microbatch},
          {RowKind::weight_grad, row.stage, row.microbatch}};
}

std::vector<RowResult> needed_by(const Row& row, int stages) {
  const int mb = row.microbatch;
  std::vector<RowResult> out;
  switch (row.kind) {
    case RowKind::forward:
      if (row.stage > 0) out.push_back({RowKind::forward, row.stage - 1, mb});
      break;
    case RowKind::input_grad:
    case RowKind::backward:
      out.push_back({RowKind::forward, row.stage, mb});
      if (row.stage + 1 < stages) out.push_back({RowKind::input_grad, row.stage + 1, mb});
      break;
    case RowKind::weight_grad: out.push_back({RowKind::input_grad, row.stage, mb}); break;
  }
  return out;
}

RowGivers::RowGivers(const Rows& rows) : microbatches_(rows.microbatches) {
  TENON_ASSERT(rows.of_rank.size() == static_cast<size_t>(rows.ranks));
  givers_.assign(size_t{3} * static_cast<size_t>(rows.stages) * static_cast<size_t>(rows.microbatches),
                 {-1, -1});
  for (int rank = 0; rank < rows.ranks; ++rank) {
    const std::vector<Row>& list = rows.of_rank[static_cast<size_t>(rank)];
    for (size_t i = 0; i < list.size(); ++i) {
      for (const RowResult& result : given_by(list[i])) {
        TENON_ASSERT(index(result) < givers_.size());
        RowRef& giver = givers_[index(result)];
        if (giver.rank < 0) giver = {rank, static_cast<int>(i)};
      }
    }
  }
}

size_t RowGivers::index(const RowResult& result) const {
  const auto work = static_cast<size_t>(result.stage) * static_cast<size_t>(microbatches_) +
                    static_cast<size_t>(result.microbatch);
  return work * 3 + static_cast<size_t>(result.kind);
}

size_t end_of_block(const std::vector<Row>& rows, size_t first) {
  size_t end = first + 1;
  while (rows[first].overlap > 0 && end < rows.size() && rows[end].overlap == rows[first].overlap) ++end;
  return end;
}

namespace {

constexpr int64_t kNever = -1;

class Replay {
 public:
  Replay(const Rows& rows, const RowGivers& givers, const RowCost& cost)
      : rows_(rows), givers_(givers), cost_(cost), ready_at_(givers.size(), kNever) {
    out_.of_rank.resize(rows.of_rank.size());
  }

  RowReplay run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t rank = 0; rank < rows_.of_rank.size(); ++rank) {
        while (step(rank)) progress = true;
      }
    }
    for (size_t rank = 0; rank < rows_.of_rank.size(); ++rank) {
      if (out_.of_rank[rank].size() < rows_.of_rank[rank].size()) out_.complete = false;
    }
    return std::move(out_);
  }

 private:
  // When all that the rows need is there; kNever: not yet known.
  int64_t start_of(const std::vector<Row>& list, size_t first, size_t end) const {
    int64_t start = 0;
    for (size_t i = first; i < end; ++i) {
      for (const RowResult& need : needed_by(list[i], rows_.stages)) {
        const int64_t at = ready_at_[givers_.index(need)];
        if (at == kNever) return kNever;
        start = std::max(start, at);
      }
    }
    return start;
  }

  // Runs the next rows of a rank, if they can run.
  bool step(size_t rank) {
    const std::vector<Row>& list = rows_.of_rank[rank];
    std::vector<RowTime>& times = out_.of_rank[rank];
    const size_t first = times.size();
    if (first == list.size()) return false;
    const size_t end = end_of_block(list, first);
    int64_t start = start_of(list, first, end);
    if (start == kNever) return false;
    if (!times.empty()) start = std::max(start, times.back().end);
    int64_t stop = start;
    for (size_t i = first; i < end; ++i) stop += cost_.of(list[i].kind);
    for (size_t i = first; i < end; ++i) {
      times.push_back({start, stop});
      for (const RowResult& result : given_by(list[i])) ready_at_[givers_.index(result)] = stop;
    }
    return true;
  }

  const Rows& rows_;
  const RowGivers& givers_;
  const RowCost& cost_;
  std::vector<int64_t> ready_at_;
  RowReplay out_;
};

}  // namespace

RowReplay replay(const Rows& rows, const RowGivers& givers, const RowCost& cost) {
  return Replay(rows, givers, cost).run();
}

}  // namespace tenon
