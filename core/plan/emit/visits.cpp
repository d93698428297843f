#include "plan/emit/visits.h"

#include <algorithm>
#include <utility>

#include "plan/rows/times.h"

namespace tenon {
namespace {

struct Turn {
  size_t next = 0;  // of the row's ops
  bool begun = false;
};

}  // namespace

Status take_turns(const StagePlan& stages, std::span<const Row> rows, const TurnVisit& begin,
                  const TurnVisit& end) {
  std::vector<Turn> turns(rows.size());
  const auto take = [&](size_t row) -> Status {
    const std::vector<OpId>& ops = stages.ops(rows[row].kind, rows[row].stage);
    for (Turn& turn = turns[row]; turn.next < ops.size(); ++turn.next) {
      const OpId op = ops[turn.next];
      if (!std::exchange(turn.begun, true)) {
        TENON_CHECK(begin(row, op));
        if (stages.exchanges[op]) return {};
      }
      TENON_CHECK(end(row, op));
      turn.begun = false;
    }
    return {};
  };
  const auto running = [&] {
    return std::ranges::any_of(turns, [](const Turn& turn) { return turn.begun; });
  };
  do {
    for (size_t row = 0; row < rows.size(); ++row) TENON_CHECK(take(row));
  } while (running());
  return {};
}

std::vector<int> readers_of(const StagePlan& stages, const Rows& rows, ValueId value, int maker) {
  std::vector<int> out;
  for (int stage : stages.readers[value]) {
    const int reader = rows.owner[static_cast<size_t>(stage)];
    if (reader != maker && std::ranges::count(out, reader) == 0) out.push_back(reader);
  }
  return out;
}

std::vector<std::vector<Visit>> plan_visits(const Graph& graph, const StagePlan& stages, const Rows& rows) {
  std::vector<std::vector<Visit>> out(static_cast<size_t>(rows.ranks));
  std::vector<size_t> done(out.size());  // rows of each class
  for (const RowRef& ref : linear_order(rows)) {
    const auto rank = static_cast<size_t>(ref.rank), first = static_cast<size_t>(ref.row);
    if (first < done[rank]) continue;  // ran with the one before
    const std::vector<Row>& all = rows.of_rank[rank];
    const std::span block(all.begin() + static_cast<ptrdiff_t>(first), end_of_block(all, first) - first);
    done[rank] = first + block.size();
    out[rank].push_back({first, done[rank]});
    const auto send = [&](size_t row, OpId op) {
      for (ValueId value : graph.op(op).out) {
        for (int reader : readers_of(stages, rows, value, ref.rank))
          out[static_cast<size_t>(reader)].push_back({0, 0, value, block[row].microbatch, ref.rank});
      }
      return Status();
    };
    (void)take_turns(
        stages, block, [](size_t, OpId) { return Status(); }, send);
  }
  return out;
}

}  // namespace tenon
