// V002 and V003: the transfers of all ranks match, and all complete.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>
#include <utility>

#include "plan/verify/checks.h"
#include "plan/verify/verify.h"

namespace tenon {
namespace {

std::string describe(const Transfer& t) {
  const std::string value =
      t.microbatch < 0 ? "" : fmt::format(" of '{}', microbatch {},", t.name, t.microbatch);
  return fmt::format("{}{} {} {} bytes over {{{}}} (instruction {})", name_of(t.kind), value,
                     name_of(t.dtype), t.bytes, fmt::join(t.members, ","), t.instr);
}

bool same(const Transfer& a, const Transfer& b) {
  const bool ends = is_one_way(a.kind) && is_one_way(b.kind) && a.kind != b.kind;
  if (a.microbatch != b.microbatch || a.value != b.value || a.because != b.because) return false;
  const bool kinds = &a == &b || (is_one_way(a.kind) ? ends : a.kind == b.kind);
  return kinds && a.root == b.root && a.bytes == b.bytes && a.dtype == b.dtype && a.reduction == b.reduction;
}

Status check_group(const Transfer& t, size_t rank, size_t world) {
  const bool inside = std::all_of(t.members.begin(), t.members.end(),
                                  [&](int32_t m) { return m >= 0 && static_cast<size_t>(m) < world; });
  const bool sorted = std::is_sorted(t.members.begin(), t.members.end(), std::less_equal<>());
  const bool mine =
      std::find(t.members.begin(), t.members.end(), static_cast<int32_t>(rank)) != t.members.end();
  if (inside && sorted && mine) return {};
  return refuse("V002", fmt::format("rank {} does {}, which is no group of its own", rank, describe(t)), "");
}

// The ranks as they go through their lists. A rank starts its next transfer when all that it waits for before
// that is complete. A transfer is complete when all its members have started it and it is, on each of them,
// the oldest of its lane: that is the least that a comm plugin can do, for it may send nothing before the
// other end is there. What is complete stays so, hence the order in which ranks are looked at does not
// matter.
class World {
 public:
  explicit World(const std::vector<std::vector<Transfer>>& lists) : lists_(lists), ranks_(lists.size()) {
    for (size_t rank = 0; rank < lists.size(); ++rank) ranks_[rank].complete.resize(lists[rank].size());
  }

  Status run() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) look_again(rank);
    while (!to_look_at_.empty()) {
      const size_t rank = to_look_at_.front();
      to_look_at_.pop_front();
      ranks_[rank].listed = false;
      start(rank);
      for (auto& [lane, queue] : ranks_[rank].lanes) {
        while (!queue.empty() && everybody_at(rank, queue.front())) {
          TENON_CHECK(check_agree(rank, queue.front()));
          pass(rank, queue.front());
        }
      }
    }
    for (size_t rank = 0; rank < ranks_.size(); ++rank) TENON_CHECK(check_not_stuck(rank));
    return {};
  }

 private:
  using Queue = std::deque<size_t>;  // started and not complete, oldest first
  struct Rank {
    std::map<uint32_t, Queue> lanes;
    std::vector<bool> complete;
    size_t next = 0;
    bool listed = false;  // in to_look_at_
  };

  void look_again(size_t rank) {
    if (std::exchange(ranks_[rank].listed, true)) return;
    to_look_at_.push_back(rank);
  }

  // What a rank waits for before its next transfer; none: it can start, or has started all.
  std::optional<size_t> awaited(size_t rank) const {
    const Rank& mine = ranks_[rank];
    if (mine.next == lists_[rank].size()) return std::nullopt;
    for (size_t need : lists_[rank][mine.next].needs) {
      if (!mine.complete[need]) return need;
    }
    return std::nullopt;
  }

  void start(size_t rank) {
    Rank& mine = ranks_[rank];
    for (; mine.next < lists_[rank].size() && !awaited(rank); ++mine.next)
      mine.lanes[lists_[rank][mine.next].lane].push_back(mine.next);
  }

  // The lane of a member that is at this transfer of `rank`; NULL: none is.
  Queue* lane_at(size_t member, size_t rank, const Transfer& transfer) {
    if (member == rank) return &ranks_[rank].lanes.at(transfer.lane);
    for (auto& [lane, queue] : ranks_[member].lanes) {
      if (queue.empty()) continue;
      const Transfer& head = lists_[member][queue.front()];
      // Two that both send, or both receive, do not meet.
      const bool one_way = is_one_way(head.kind) && is_one_way(transfer.kind);
      const bool meets = one_way ? head.kind != transfer.kind : lane == transfer.lane;
      if (meets && head.members == transfer.members) return &queue;
    }
    return nullptr;
  }

  bool everybody_at(size_t rank, size_t number) {
    const Transfer& mine = lists_[rank][number];
    return std::ranges::all_of(mine.members, [&](int32_t peer) {
      return lane_at(static_cast<size_t>(peer), rank, mine) != nullptr;
    });
  }

  Status check_agree(size_t rank, size_t number) {
    const Transfer& mine = lists_[rank][number];
    for (int32_t member : mine.members) {
      const auto peer = static_cast<size_t>(member);
      const Transfer& other = lists_[peer][lane_at(peer, rank, mine)->front()];
      if (same(mine, other)) continue;
      return refuse(
          "V002",
          fmt::format("rank {} does {}, rank {} does {}", rank, describe(mine), peer, describe(other)), "");
    }
    return {};
  }

  void pass(size_t rank, size_t number) {
    const Transfer& mine = lists_[rank][number];
    std::vector<std::pair<size_t, Queue*>> at;
    for (int32_t member : mine.members) {
      const auto peer = static_cast<size_t>(member);
      at.emplace_back(peer, lane_at(peer, rank, mine));
    }
    for (auto& [peer, queue] : at) {
      ranks_[peer].complete[queue->front()] = true;
      queue->pop_front();
      look_again(peer);
    }
  }

  // When nothing completes any more: names who is missing where this rank waits.
  Status check_not_stuck(size_t rank) {
    for (const auto& [lane, queue] : ranks_[rank].lanes) {
      if (queue.empty()) continue;
      const Transfer& stuck = lists_[rank][queue.front()];
      for (int32_t member : stuck.members) {
        const auto peer = static_cast<size_t>(member);
        if (lane_at(peer, rank, stuck) != nullptr) continue;
        return refuse("V003",
                      fmt::format("deadlock: rank {} waits in {}, but rank {} {}", rank, describe(stuck),
                                  peer, doing(peer, lane)),
                      "");
      }
    }
    return {};
  }

  std::string doing(size_t rank, uint32_t lane) {
    const Queue& queue = ranks_[rank].lanes[lane];
    if (!queue.empty()) return "is at " + describe(lists_[rank][queue.front()]);
    const auto need = awaited(rank);
    return need ? "waits in " + describe(lists_[rank][*need]) : "has nothing left to do";
  }

  const std::vector<std::vector<Transfer>>& lists_;
  std::vector<Rank> ranks_;
  std::deque<size_t> to_look_at_;
};

// Of a rank that has this group for the instruction's axes.
Transfer transfer_at(const Program& program, InstrId id, int32_t rank, const std::vector<int32_t>& group) {
  const Instr& instr = program.instrs[id];
  const Operand& operand = moved_operand(instr);
  Transfer out{id, transfer_of(instr), group, -1, operand.bytes(), operand.dtype, instr.reduction};
  out.lane = instr.axes[0];
  if (std::ranges::count(instr.axes, program.pipeline_axis) > 0) {
    out.value = instr.why.value;
    out.because = instr.why.because;
  }
  if (is_one_way(out.kind)) {
    const bool sends = out.kind == TransferKind::send;
    const int32_t other = group.at(static_cast<size_t>(instr.peer));
    out.root = sends ? rank : other;
    out.members = {std::min(rank, other), std::max(rank, other)};
    out.microbatch = instr.microbatch;
    out.name = operand.name;
    const auto lanes_of_axes = static_cast<uint32_t>(program.mesh.axes.size());
    out.lane = lanes_of_axes + 2 * static_cast<uint32_t>(instr.peer) + (sends ? 0 : 1);
  } else if (out.kind == TransferKind::broadcast) {
    out.root = group.at(static_cast<size_t>(instr.peer));
  }
  return out;
}

// `members`: world ranks of a group over some axes, in order; none: the transfer is left out.
template <class Members>
std::vector<Transfer> listed(const Program& program, int32_t rank, Members members) {
  std::vector<Transfer> out;
  std::map<std::vector<AxisId>, std::vector<int32_t>> groups;
  std::vector<size_t> numbers(program.instrs.size(), SIZE_MAX);  // in `out`
  std::vector<size_t> needs;
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    const Instr& instr = program.instrs[id];
    for (InstrId wait : instr.waits) {
      if (wait < id && numbers[wait] != SIZE_MAX) needs.push_back(numbers[wait]);
    }
    if (instr.lane == 0) continue;
    const auto [group, fresh] = groups.try_emplace(instr.axes);
    if (fresh) group->second = members(instr.axes);
    if (group->second.empty()) continue;
    numbers[id] = out.size();
    out.push_back(transfer_at(program, id, rank, group->second));
    out.back().needs = std::exchange(needs, {});
  }
  return out;
}

}  // namespace

std::vector<Transfer> transfers_of(const Program& program, int64_t rank) {
  return listed(program, static_cast<int32_t>(rank),
                [&](const std::vector<AxisId>& axes) { return program.mesh.group(rank, axes); });
}

std::vector<Transfer> transfers_between_classes(const Program& program) {
  return listed(program, static_cast<int32_t>(program.class_index), [&](const std::vector<AxisId>& axes) {
    std::vector<int32_t> classes;
    if (std::ranges::count(axes, program.pipeline_axis) == 0) return classes;
    classes.resize(static_cast<size_t>(program.mesh.axes[program.pipeline_axis].size));
    std::iota(classes.begin(), classes.end(), 0);
    return classes;
  });
}

Status check_transfers(const std::vector<std::vector<Transfer>>& per_rank) {
  for (size_t rank = 0; rank < per_rank.size(); ++rank) {
    for (const Transfer& transfer : per_rank[rank]) TENON_CHECK(check_group(transfer, rank, per_rank.size()));
  }
  return World(per_rank).run();
}

}  // namespace tenon
