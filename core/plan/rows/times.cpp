#include "plan/rows/times.h"

#include <algorithm>

namespace tenon {
namespace {

// The most results between forward and weight gradient. Of rows that run interleaved, forwards count first.
int most_activations(const std::vector<Row>& rows) {
  int now = 0, most = 0;
  for (size_t first = 0; first < rows.size();) {
    const size_t end = end_of_block(rows, first);
    int released = 0;
    for (; first < end; ++first) {
      if (rows[first].kind == RowKind::forward) ++now;
      if (rows[first].kind == RowKind::weight_grad || rows[first].kind == RowKind::backward) ++released;
    }
    most = std::max(most, now);
    now -= released;
  }
  return most;
}

int64_t work_of(const std::vector<Row>& rows, const RowCost& cost) {
  int64_t sum = 0;
  for (const Row& row : rows) sum += cost.of(row.kind);
  return sum;
}

}  // namespace

RowSimulation simulate(const Rows& rows, const RowCost& cost) {
  RowSimulation out;
  out.of_rank = replay(rows, RowGivers(rows), cost).of_rank;
  int64_t busy = 0;
  for (size_t rank = 0; rank < rows.of_rank.size(); ++rank) {
    if (!out.of_rank[rank].empty()) out.duration = std::max(out.duration, out.of_rank[rank].back().end);
    out.activations.push_back(most_activations(rows.of_rank[rank]));
    busy += work_of(rows.of_rank[rank], cost);
  }
  const int64_t time = out.duration * rows.ranks;
  out.idle_fraction = time == 0 ? 0 : static_cast<double>(time - busy) / static_cast<double>(time);
  return out;
}

std::vector<RowRef> linear_order(const Rows& rows) {
  const RowReplay times = replay(rows, RowGivers(rows), RowCost{});
  std::vector<RowRef> out;
  for (int rank = 0; rank < rows.ranks; ++rank) {
    const int count = static_cast<int>(rows.of_rank[static_cast<size_t>(rank)].size());
    for (int row = 0; row < count; ++row) out.push_back({rank, row});
  }
  // Every row takes time, so what a row needs started before it.
  const auto start = [&](const RowRef& ref) {
    return times.of_rank[static_cast<size_t>(ref.rank)][static_cast<size_t>(ref.row)].start;
  };
  std::stable_sort(out.begin(), out.end(),
                   [&](const RowRef& a, const RowRef& b) { return start(a) < start(b); });
  return out;
}

}  // namespace tenon
