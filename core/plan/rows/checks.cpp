#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "plan/rows/replay.h"

namespace tenon {
namespace {

const Row& row_at(const Rows& rows, const RowRef& ref) {
  return rows.of_rank[static_cast<size_t>(ref.rank)][static_cast<size_t>(ref.row)];
}

// "row 4 (W0.2) of rank 1"
std::string name_of(const Rows& rows, const RowRef& ref) {
  return fmt::format("row {} ({}) of rank {}", ref.row + 1, text_of(row_at(rows, ref)), ref.rank);
}

std::string name_of(const RowResult& result) {
  return text_of(Row{result.kind, result.stage, result.microbatch});
}

// Whether the schedule tells the two gradients of a backward apart.
bool splits_backward(const Rows& rows) {
  return std::ranges::any_of(rows.of_rank, [](const std::vector<Row>& list) {
    return std::ranges::any_of(list, [](const Row& row) {
      return row.kind == RowKind::input_grad || row.kind == RowKind::weight_grad;
    });
  });
}

Status check_shape(const Rows& rows) {
  const auto wrong = [](std::string cause) {
    return refuse_rows("S003", std::move(cause), "",
                       "the schedule must say what each rank does, and who owns each stage");
  };
  if (rows.ranks < 1 || rows.stages < 1 || rows.microbatches < 1 ||
      int64_t{rows.stages} * rows.microbatches > kMaxRowWork) {
    return wrong(
        fmt::format("{} ranks, {} stages and {} microbatches: each is at least 1, and stages * microbatches "
                    "at most {}",
                    rows.ranks, rows.stages, rows.microbatches, kMaxRowWork));
  }
  if (rows.of_rank.size() != static_cast<size_t>(rows.ranks)) {
    return wrong(fmt::format("rows of {} ranks where there are {}", rows.of_rank.size(), rows.ranks));
  }
  if (rows.owner.size() != static_cast<size_t>(rows.stages)) {
    return wrong(fmt::format("owners of {} stages where there are {}", rows.owner.size(), rows.stages));
  }
  std::vector<bool> owns(rows.of_rank.size());
  for (int stage = 0; stage < rows.stages; ++stage) {
    const int owner = rows.owner[static_cast<size_t>(stage)];
    if (owner < 0 || owner >= rows.ranks) {
      return wrong(fmt::format("stage {} is on none of the {} ranks", stage, rows.ranks));
    }
    owns[static_cast<size_t>(owner)] = true;
  }
  const auto idle = std::ranges::find(owns, false);
  if (idle != owns.end())
    return wrong(fmt::format("rank {} of {} has no stage", idle - owns.begin(), rows.ranks));
  return {};
}

Status check_row(const Rows& rows, const RowRef& ref) {
  const Row& row = row_at(rows, ref);
  const auto known = static_cast<uint32_t>(row.kind) <= static_cast<uint32_t>(RowKind::backward);
  if (!known || row.stage < 0 || row.stage >= rows.stages || row.microbatch < 0 ||
      row.microbatch >= rows.microbatches || row.overlap < 0) {
    const std::string what =
        known ? text_of(row) : fmt::format("kind {}, which none is", static_cast<uint32_t>(row.kind));
    return refuse_rows(
        "S003",
        fmt::format("{} (stage {}, microbatch {}, overlap {}): there are {} stages and {} microbatches", what,
                    row.stage, row.microbatch, row.overlap, rows.stages, rows.microbatches),
        fmt::format("row {} of rank {}", ref.row + 1, ref.rank), "count from 0, and stay within them");
  }
  const int owner = rows.owner[static_cast<size_t>(row.stage)];
  if (owner != ref.rank) {
    return refuse_rows("S006", fmt::format("stage {} is on rank {}", row.stage, owner), name_of(rows, ref),
                       fmt::format("move the row to rank {}", owner));
  }
  return {};
}

Status check_each_row(const Rows& rows) {
  for (int rank = 0; rank < rows.ranks; ++rank) {
    const int count = static_cast<int>(rows.of_rank[static_cast<size_t>(rank)].size());
    for (int row = 0; row < count; ++row) TENON_CHECK(check_row(rows, {rank, row}));
  }
  return {};
}

Status check_twice(const Rows& rows, const RowGivers& givers) {
  for (int rank = 0; rank < rows.ranks; ++rank) {
    const int count = static_cast<int>(rows.of_rank[static_cast<size_t>(rank)].size());
    for (int row = 0; row < count; ++row) {
      const RowRef ref{rank, row};
      for (const RowResult& result : given_by(row_at(rows, ref))) {
        const RowRef first = givers.of(result);
        if (first == ref) continue;
        const bool same = row_at(rows, first).kind == row_at(rows, ref).kind;
        const std::string what = same ? text_of(row_at(rows, ref)) : name_of(result);
        return refuse_rows("S005", fmt::format("{} is done by {} already", what, name_of(rows, first)),
                           name_of(rows, ref), "remove one of the two; a B is both I and W");
      }
    }
  }
  return {};
}

// The first result that nobody gives, as has(result) says.
template <class Has>
Status check_missing(const Rows& rows, const Has& has) {
  for (int stage = 0; stage < rows.stages; ++stage) {
    for (int mb = 0; mb < rows.microbatches; ++mb) {
      for (const RowKind kind : {RowKind::forward, RowKind::input_grad, RowKind::weight_grad}) {
        RowResult result{kind, stage, mb};
        if (has(result)) continue;
        if (kind != RowKind::forward && !splits_backward(rows))
          result.kind = RowKind::backward;  // as written
        return refuse_rows("S004",
                           fmt::format("{} is missing: microbatch {} of {} at stage {}", name_of(result), mb,
                                       rows.microbatches, stage),
                           fmt::format("rank {}", rows.owner[static_cast<size_t>(stage)]),
                           "each microbatch needs at each stage F, and I with W or B");
      }
    }
  }
  return {};
}

// Each microbatch needs two rows at each stage. Fewer rows are told here in memory of their number, not of
// the number of microbatches, which may be any.
Status check_number(const Rows& rows) {
  size_t count = 0;
  for (const auto& list : rows.of_rank) count += list.size();
  if (count >= size_t{2} * static_cast<size_t>(rows.stages) * static_cast<size_t>(rows.microbatches))
    return {};
  std::set<std::tuple<RowKind, int, int>> given;
  for (const auto& list : rows.of_rank) {
    for (const Row& row : list) {
      for (const RowResult& result : given_by(row))
        given.insert({result.kind, result.stage, result.microbatch});
    }
  }
  return check_missing(rows, [&](const RowResult& r) {
    return given.contains({r.kind, r.stage, r.microbatch});
  });
}

// Equal ids stand side by side. (That none of them needs another shows in the replay.)
Status check_interleaved(const Rows& rows) {
  for (int rank = 0; rank < rows.ranks; ++rank) {
    const std::vector<Row>& list = rows.of_rank[static_cast<size_t>(rank)];
    std::map<int, int> seen;  // id -> its first row
    for (size_t first = 0; first < list.size();) {
      const size_t end = end_of_block(list, first);
      const RowRef ref{rank, static_cast<int>(first)};
      if (list[first].overlap > 0) {
        const auto [before, fresh] = seen.emplace(list[first].overlap, ref.row);
        if (!fresh) {
          return refuse_rows("S008",
                             fmt::format("is to run interleaved with {}, which stands apart",
                                         name_of(rows, {rank, before->second})),
                             name_of(rows, ref), "interleaved rows must be neighbours");
        }
      }
      first = end;
    }
  }
  return {};
}

// Which row each rank stands at for ever, and what for.
class Deadlock {
 public:
  Deadlock(const Rows& rows, const RowGivers& givers, const RowReplay& replay)
      : rows_(rows), givers_(givers), replay_(replay) {}

  Error explain() const {
    std::vector<int> path;
    std::set<int> seen;
    int rank = 0;
    while (ran(rank) == rows_.of_rank[static_cast<size_t>(rank)].size()) ++rank;
    while (seen.insert(rank).second) {  // ends: every rank on the way is stuck behind another
      path.push_back(rank);
      rank = waits_for(rank).giver.rank;
    }
    path.erase(path.begin(), std::find(path.begin(), path.end(), rank));
    return error_of(path);
  }

 private:
  struct Wait {
    RowRef row;                // that cannot start
    RowRef giver;              // of what it needs
    bool interleaved = false;  // with it
  };

  size_t ran(int rank) const { return replay_.of_rank[static_cast<size_t>(rank)].size(); }

  Wait waits_for(int rank) const {
    const std::vector<Row>& list = rows_.of_rank[static_cast<size_t>(rank)];
    const size_t first = ran(rank), end = end_of_block(list, first);
    for (size_t i = first; i < end; ++i) {
      for (const RowResult& need : needed_by(list[i], rows_.stages)) {
        const RowRef giver = givers_.of(need);
        if (static_cast<size_t>(giver.row) < ran(giver.rank)) continue;
        const bool interleaved = giver.rank == rank && static_cast<size_t>(giver.row) < end;
        return {{rank, static_cast<int>(i)}, giver, interleaved};
      }
    }
    const RowRef none{rank, static_cast<int>(first)};  // not reached: a stuck rank lacks something
    return {none, none, false};
  }

  Error error_of(const std::vector<int>& cycle) const {
    std::string cause;
    for (const int rank : cycle) {
      const Wait wait = waits_for(rank);
      const std::string needed = name_of(rows_, wait.giver);
      if (wait.interleaved) {
        return refuse_rows("S008", fmt::format("needs {}, with which it is to run interleaved", needed),
                           name_of(rows_, wait.row), "interleave only rows of which none needs another");
      }
      cause += fmt::format("{}{} needs {}", cause.empty() ? "" : "; ", name_of(rows_, wait.row), needed);
      const RowRef stuck = waits_for(wait.giver.rank).row;
      if (wait.giver.row > stuck.row) cause += fmt::format(", which stands behind row {}", stuck.row + 1);
    }
    return refuse_rows(
        "S007", "ranks would wait for ever: " + cause, name_of(rows_, waits_for(cycle.front()).row),
        "put every row behind what it needs: F behind F of the stage before, I or B behind its F and "
        "behind I or B of the stage after, W behind its I");
  }

  const Rows& rows_;
  const RowGivers& givers_;
  const RowReplay& replay_;
};

}  // namespace

Status check_rows(const Rows& rows) {
  TENON_CHECK(check_shape(rows));
  TENON_CHECK(check_each_row(rows));
  TENON_CHECK(check_number(rows));
  const RowGivers givers(rows);
  TENON_CHECK(check_twice(rows, givers));
  TENON_CHECK(check_missing(rows, [&](const RowResult& result) { return givers.of(result).rank >= 0; }));
  TENON_CHECK(check_interleaved(rows));
  const RowReplay run = replay(rows, givers, RowCost{});
  if (!run.complete) return Deadlock(rows, givers, run).explain();
  return {};
}

}  // namespace tenon
