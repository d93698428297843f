#include "plan/verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/checks.h"

namespace tenon {

std::string where(const Program& program, InstrId id) {
  const Instr& instr = program.instrs[id];
  const std::string name = instr.out.empty() ? "" : " " + instr.out[0].name;
  return fmt::format("{} program, instruction {} ({}{}, microbatch {})", program.name, id, instr.kind, name,
                     instr.microbatch);
}

Error refuse(const char* code, const std::string& cause, const std::string& place) {
  return Error{code, cause, place, "this is a defect of the compiler or of a pass, not of the recipe",
               TENON_E_INTERNAL};
}

bool is_transfer(std::string_view kind) {
  return kind == "all_reduce" || kind == "reduce_scatter" || kind == "all_gather" || kind == "all_to_all";
}

Range range_of(const Program& program, const Operand& operand) {
  const Buffer& buffer = program.buffers[operand.buffer];
  const uint64_t base = (static_cast<uint64_t>(buffer.space) << 60) + buffer.offset + operand.offset;
  return {base, base + operand.bytes()};
}

namespace {

std::string describe(const Transfer& t) {
  return fmt::format("{} {} {} bytes over {{{}}} (instruction {})", t.kind, name_of(t.dtype), t.bytes,
                     fmt::join(t.members, ","), t.instr);
}

bool same(const Transfer& a, const Transfer& b) {
  return a.kind == b.kind && a.bytes == b.bytes && a.dtype == b.dtype && a.reduction == b.reduction;
}

// Bytes that a transfer must write, given what it reads.
bool sizes_fit(const Instr& instr, uint64_t members) {
  const uint64_t in = instr.in[0].bytes(), out = instr.out[0].bytes();
  if (instr.in[0].dtype != instr.out[0].dtype) return false;
  if (instr.kind == "all_gather") return out == in * members;
  if (instr.kind == "reduce_scatter") return in == out * members;
  if (instr.kind == "all_to_all")
    return in == out && instr.in[0].elements() % static_cast<int64_t>(members) == 0;
  return instr.kind == "all_reduce" && in == out;
}

Status check_transfer(const Program& program, InstrId id) {
  const Instr& instr = program.instrs[id];
  for (size_t i = 0; i < instr.axes.size(); ++i) {
    const bool once = std::count(instr.axes.begin(), instr.axes.end(), instr.axes[i]) == 1;
    if (instr.axes[i] < program.mesh.axes.size() && once) continue;
    return refuse("V002", "runs over an axis twice, or over one that the mesh lacks", where(program, id));
  }
  const bool moves = is_transfer(instr.kind);
  const bool placed = instr.lane < program.lanes.size() && (instr.lane != 0) == moves;
  if (!placed || (moves && instr.axes.empty()) || (!moves && !instr.axes.empty() && instr.kind != "slice")) {
    return refuse("V002", "a transfer is not on a lane of its own, or a kernel is", where(program, id));
  }
  if (!moves) return {};
  if (program.lanes[instr.lane] != program.mesh.axes[instr.axes[0]].name) {
    return refuse("V002", "is on the lane of another axis", where(program, id));
  }
  if (instr.in.size() != 1 || instr.out.size() != 1 ||
      !sizes_fit(instr, static_cast<uint64_t>(program.mesh.size(instr.axes)))) {
    return refuse("V002", "what it reads and what it writes do not fit each other", where(program, id));
  }
  return {};
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

// The ranks as they go through their transfers, each of which starts when all of its group have come to it.
class Meeting {
 public:
  explicit Meeting(const std::vector<std::vector<Transfer>>& per_rank)
      : per_rank_(per_rank), next_(per_rank.size()) {}

  // True if the whole group of this rank's next transfer is at it. Asked of a group's first rank only.
  bool complete(size_t rank) const {
    const Transfer* mine = head(rank);
    if (mine == nullptr || mine->members[0] != static_cast<int32_t>(rank)) return false;
    return std::all_of(mine->members.begin(), mine->members.end(),
                       [&](int32_t peer) { return is_at(peer, *mine); });
  }

  Status check_agree(size_t rank) const {
    const Transfer& mine = *head(rank);
    for (int32_t peer : mine.members) {
      const Transfer& other = *head(static_cast<size_t>(peer));
      if (same(mine, other)) continue;
      return refuse(
          "V002",
          fmt::format("rank {} does {}, rank {} does {}", rank, describe(mine), peer, describe(other)), "");
    }
    return {};
  }

  void pass(size_t rank) {
    for (int32_t peer : head(rank)->members) ++next_[static_cast<size_t>(peer)];
  }

  // When no group is complete any more: names who is missing where this rank waits.
  Status check_not_stuck(size_t rank) const {
    const Transfer* stuck = head(rank);
    if (stuck == nullptr) return {};
    for (int32_t peer : stuck->members) {
      if (is_at(peer, *stuck)) continue;
      const Transfer* other = head(static_cast<size_t>(peer));
      return refuse("V003",
                    fmt::format("deadlock: rank {} waits in {}, but rank {} {}", rank, describe(*stuck), peer,
                                other == nullptr ? "has nothing left to do" : "is at " + describe(*other)),
                    "");
    }
    return {};
  }

 private:
  const Transfer* head(size_t rank) const {
    return next_[rank] < per_rank_[rank].size() ? &per_rank_[rank][next_[rank]] : nullptr;
  }
  bool is_at(int32_t rank, const Transfer& transfer) const {
    const Transfer* at = head(static_cast<size_t>(rank));
    return at != nullptr && at->members == transfer.members;
  }

  const std::vector<std::vector<Transfer>>& per_rank_;
  std::vector<size_t> next_;
};

}  // namespace

std::vector<Transfer> transfers_of(const Program& program, int64_t rank) {
  std::vector<Transfer> out;
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    const Instr& instr = program.instrs[id];
    if (instr.lane == 0) continue;
    out.push_back({id, instr.kind, program.mesh.group(rank, instr.axes), instr.in[0].bytes(),
                   instr.in[0].dtype, instr.reduction});
  }
  return out;
}

Status check_transfers(const std::vector<std::vector<Transfer>>& per_rank) {
  for (size_t rank = 0; rank < per_rank.size(); ++rank) {
    for (const Transfer& transfer : per_rank[rank]) TENON_CHECK(check_group(transfer, rank, per_rank.size()));
  }
  Meeting meeting(per_rank);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < per_rank.size(); ++rank) {
      if (!meeting.complete(rank)) continue;
      TENON_CHECK(meeting.check_agree(rank));
      meeting.pass(rank);
      moved = true;
    }
  }
  for (size_t rank = 0; rank < per_rank.size(); ++rank) TENON_CHECK(meeting.check_not_stuck(rank));
  return {};
}

Status check_symmetric(const Program& program) {
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    TENON_CHECK(check_transfer(program, id));
    for (InstrId wait : program.instrs[id].waits) {
      if (wait >= id)
        return refuse("V003", fmt::format("waits for instruction {}, which comes no earlier", wait),
                      where(program, id));
    }
  }
  return {};
}

namespace {

constexpr int64_t kBruteForceWorld = 64;

}  // namespace

Result<VerifyReport> verify(const Program& program) {
  VerifyReport report;
  TENON_CHECK(check_symmetric(program));
  const int64_t world = program.mesh.world();
  report.passed.push_back(fmt::format("transfers match and cannot deadlock, {} ranks by symmetry", world));
  if (world <= kBruteForceWorld) {
    std::vector<std::vector<Transfer>> per_rank;
    for (int64_t rank = 0; rank < world; ++rank) per_rank.push_back(transfers_of(program, rank));
    TENON_CHECK(check_transfers(per_rank));
    report.passed.push_back(fmt::format("the same, every rank run: {} transfers each", per_rank[0].size()));
  }
  TENON_CHECK(check_memory(program));
  TENON_CHECK(check_initialised(program));
  TENON_CHECK(check_races(program));
  report.passed.push_back(
      fmt::format("no races, no read before a write, peak memory: {} instructions, {} buffers",
                  program.instrs.size(), program.buffers.size()));
  TENON_CHECK(check_completeness(program));
  if (program.name == "train") {
    report.passed.push_back(fmt::format("each of {} parameters updated once from {} microbatches",
                                        program.params.size(), program.microbatches));
  }
  return report;
}

}  // namespace tenon
