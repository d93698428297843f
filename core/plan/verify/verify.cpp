#include "plan/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/verify/checks.h"

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

Error refused(const std::string& cause) { return refuse("V007", cause, ""); }

ByteRange range_of(const Program& program, const Operand& operand) {
  const Buffer& buffer = program.buffers[operand.buffer];
  const uint64_t base = (static_cast<uint64_t>(buffer.space) << 60) + buffer.offset + operand.offset;
  return {base, base + operand.bytes()};
}

namespace {

std::string describe(const Transfer& t) {
  const std::string value =
      t.microbatch < 0 ? "" : fmt::format(" of '{}', microbatch {},", t.value, t.microbatch);
  return fmt::format("{}{} {} {} bytes over {{{}}} (instruction {})", name_of(t.kind), value,
                     name_of(t.dtype), t.bytes, fmt::join(t.members, ","), t.instr);
}

bool same(const Transfer& a, const Transfer& b) {
  const bool ends = is_one_way(a.kind) && is_one_way(b.kind) && a.kind != b.kind;
  if (is_one_way(a.kind) && (a.microbatch != b.microbatch || (a.microbatch >= 0 && a.value != b.value)))
    return false;
  const bool kinds = &a == &b || (is_one_way(a.kind) ? ends : a.kind == b.kind);
  return kinds && a.root == b.root && a.bytes == b.bytes && a.dtype == b.dtype && a.reduction == b.reduction;
}

// Uneven shares of a bucket.
bool shares_fit(const Program& program, const Instr& instr) {
  const auto index = static_cast<size_t>(instr.layout);
  if (index >= program.layouts.size()) return false;
  const FlatLayout& layout = program.layouts[index];
  const auto depths = depths_of(layout, instr.axes);
  if (!depths) return false;
  const auto size = static_cast<uint64_t>(size_of(instr.in[0].dtype));
  const auto bytes = [&](size_t depth) {
    return static_cast<uint64_t>(most_at(program.mesh, layout, depth)) * size;
  };
  const uint64_t whole = bytes(depths->outer), part = bytes(depths->inner);
  const uint64_t in = instr.in[0].bytes(), out = instr.out[0].bytes();
  const TransferKind kind = transfer_of(instr);
  if (kind == TransferKind::all_gather) return in == part && out == whole;
  return kind == TransferKind::reduce_scatter && in == whole && out == part;
}

// What a transfer writes must be what it reads makes.
bool sizes_fit(const Program& program, const Instr& instr) {
  const TransferKind kind = transfer_of(instr);
  if (kind == TransferKind::send) return instr.in.size() == 1 && instr.out.empty();
  if (kind == TransferKind::recv) return instr.in.empty() && instr.out.size() == 1;
  if (instr.out.size() != 1 || instr.in.size() > 1) return false;
  if (kind == TransferKind::broadcast) return instr.in.empty() || instr.in[0].bytes() == instr.out[0].bytes();
  if (instr.in.empty() || instr.in[0].dtype != instr.out[0].dtype) return false;
  if (instr.layout >= 0) return shares_fit(program, instr);
  const auto members = static_cast<uint64_t>(program.mesh.size(instr.axes));
  const uint64_t in = instr.in[0].bytes(), out = instr.out[0].bytes();
  if (kind == TransferKind::all_gather) return out == in * members;
  if (kind == TransferKind::reduce_scatter) return in == out * members;
  const bool same = in == out;
  if (kind == TransferKind::all_to_all)
    return same && instr.in[0].elements() % static_cast<int64_t>(members) == 0;
  return (kind == TransferKind::all_reduce || kind == TransferKind::permute) && same;
}

// Sends and receives are between two classes, a broadcast comes from one member of its axis; and what crosses
// classes is over the pipeline's axis alone, for within a class all ranks run one list.
bool peers_fit(const Program& program, const Instr& instr) {
  const bool crosses = std::ranges::count(instr.axes, program.pipeline_axis) > 0;
  if (crosses && instr.axes.size() > 1) return false;
  const TransferKind kind = transfer_of(instr);
  if (!is_one_way(kind) && kind != TransferKind::broadcast) return true;
  const bool there =
      instr.axes.size() == 1 && instr.peer >= 0 && instr.peer < program.mesh.axes[instr.axes[0]].size;
  return there && (!is_one_way(kind) || (crosses && instr.peer != program.class_index));
}

// Transfers with one peer have a lane for it, the others that of their first axis.
std::string lane_of(const Program& program, const Instr& instr) {
  switch (transfer_of(instr)) {
    case TransferKind::send: return "send>" + std::to_string(instr.peer);
    case TransferKind::recv: return "recv<" + std::to_string(instr.peer);
    default: break;
  }
  return program.mesh.axes[instr.axes[0]].name;
}

Status check_transfer(const Program& program, InstrId id) {
  const Instr& instr = program.instrs[id];
  for (size_t i = 0; i < instr.axes.size(); ++i) {
    const bool once = std::count(instr.axes.begin(), instr.axes.end(), instr.axes[i]) == 1;
    if (instr.axes[i] < program.mesh.axes.size() && once) continue;
    return refuse("V002", "runs over an axis twice, or over one that the mesh lacks", where(program, id));
  }
  const bool moves = is_transfer(instr);
  const bool placed = instr.lane < program.lanes.size() && (instr.lane != 0) == moves;
  if (!placed || (moves && instr.axes.empty()) || (!moves && !instr.axes.empty() && instr.offset_step == 0)) {
    return refuse("V002", "a transfer is not on a lane of its own, or a kernel is", where(program, id));
  }
  if (!moves) return {};
  if (program.lanes[instr.lane] != lane_of(program, instr)) {
    return refuse("V002", "is on the lane of another axis or peer", where(program, id));
  }
  if (!peers_fit(program, instr)) {
    return refuse("V002", "names a peer that its axis lacks, or crosses stages together with another axis",
                  where(program, id));
  }
  if (!sizes_fit(program, instr)) {
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
class Progress {
 public:
  explicit Progress(const std::vector<std::vector<Transfer>>& per_rank)
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
  // Two that both send, or both receive, do not meet.
  bool is_at(int32_t rank, const Transfer& transfer) const {
    const Transfer* at = head(static_cast<size_t>(rank));
    if (at == nullptr || at->members != transfer.members) return false;
    return at == &transfer || at->kind != transfer.kind || !is_one_way(at->kind);
  }

  const std::vector<std::vector<Transfer>>& per_rank_;
  std::vector<size_t> next_;
};

}  // namespace

std::vector<Transfer> transfers_of(const Program& program, int64_t rank) {
  std::vector<Transfer> out;
  std::map<std::vector<AxisId>, std::vector<int32_t>> groups;
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    const Instr& instr = program.instrs[id];
    if (instr.lane == 0) continue;
    const auto [group, fresh] = groups.try_emplace(instr.axes);
    if (fresh) group->second = program.mesh.group(rank, instr.axes);
    const Operand& operand = moved_operand(instr);
    Transfer transfer{
        id, transfer_of(instr), group->second, -1, operand.bytes(), operand.dtype, instr.reduction};
    if (is_one_way(transfer.kind)) {
      const int32_t other = group->second.at(static_cast<size_t>(instr.peer));
      transfer.root = transfer.kind == TransferKind::send ? static_cast<int32_t>(rank) : other;
      transfer.members = {std::min(static_cast<int32_t>(rank), other),
                          std::max(static_cast<int32_t>(rank), other)};
      transfer.microbatch = instr.microbatch;
      transfer.value = operand.name;
    } else if (transfer.kind == TransferKind::broadcast) {
      transfer.root = group->second.at(static_cast<size_t>(instr.peer));
    }
    out.push_back(std::move(transfer));
  }
  return out;
}

Status check_transfers(const std::vector<std::vector<Transfer>>& per_rank) {
  for (size_t rank = 0; rank < per_rank.size(); ++rank) {
    for (const Transfer& transfer : per_rank[rank]) TENON_CHECK(check_group(transfer, rank, per_rank.size()));
  }
  Progress progress(per_rank);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < per_rank.size(); ++rank) {
      if (!progress.complete(rank)) continue;
      TENON_CHECK(progress.check_agree(rank));
      progress.pass(rank);
      moved = true;
    }
  }
  for (size_t rank = 0; rank < per_rank.size(); ++rank) TENON_CHECK(progress.check_not_stuck(rank));
  return {};
}

Status check_symmetric(const std::vector<Program>& programs) {
  for (const Program& program : programs) {
    for (InstrId id = 0; id < program.instrs.size(); ++id) {
      TENON_CHECK(check_transfer(program, id));
      for (InstrId wait : program.instrs[id].waits) {
        if (wait >= id)
          return refuse("V003", fmt::format("waits for instruction {}, which comes no earlier", wait),
                        where(program, id));
      }
    }
  }
  if (programs.size() == 1) return {};
  std::vector<std::vector<Transfer>> crossing;
  for (const Program& program : programs) {
    // One rank for each class, numbered as the classes are.
    Program quotient;
    quotient.mesh.axes = {program.mesh.axes[program.pipeline_axis]};
    auto& transfers = crossing.emplace_back();
    for (InstrId id = 0; id < program.instrs.size(); ++id) {
      const Instr& instr = program.instrs[id];
      if (instr.lane == 0 || std::ranges::count(instr.axes, program.pipeline_axis) == 0) continue;
      Instr& kept = quotient.instrs.emplace_back(instr);
      kept.axes = {0};
      transfers.emplace_back().instr = id;
    }
    const auto projected = transfers_of(quotient, program.class_index);
    for (size_t i = 0; i < projected.size(); ++i) {
      const InstrId id = transfers[i].instr;
      transfers[i] = projected[i];
      transfers[i].instr = id;
    }
  }
  return check_transfers(crossing);
}

Status check_every_rank(const std::vector<Program>& programs) {
  std::vector<std::vector<Transfer>> per_rank;
  const Mesh& mesh = programs.front().mesh;
  for (int64_t rank = 0; rank < mesh.world(); ++rank) {
    const AxisId axis = programs.front().pipeline_axis;
    const int64_t at = axis == kNone ? 0 : mesh.coordinate(rank)[axis];
    per_rank.push_back(transfers_of(programs[static_cast<size_t>(at)], rank));
  }
  return check_transfers(per_rank);
}

namespace {

constexpr int64_t kBruteForceWorld = 64;

}  // namespace

Result<VerifyReport> verify(const std::vector<Program>& programs, const Reference& reference) {
  VerifyReport report;
  const Program& first = programs.front();
  TENON_CHECK(check_form(programs));
  TENON_CHECK(check_symmetric(programs));
  const int64_t world = first.mesh.world();
  report.passed.push_back(fmt::format("transfers match and cannot deadlock, {} ranks by symmetry", world));
  if (world <= kBruteForceWorld) {
    TENON_CHECK(check_every_rank(programs));
    report.passed.push_back(
        fmt::format("the same, every rank run: {} transfers on rank 0", transfers_of(first, 0).size()));
  }
  size_t instrs = 0, buffers = 0;
  for (const Program& program : programs) {
    TENON_CHECK(check_memory(program));
    TENON_CHECK(check_uses(program));
    TENON_CHECK(check_races(program));
    instrs += program.instrs.size();
    buffers += program.buffers.size();
  }
  report.passed.push_back(fmt::format(
      "no races, no read before a write, peak memory: {} instructions, {} buffers", instrs, buffers));
  TENON_CHECK(check_meaning(programs, reference));
  report.passed.push_back(
      fmt::format("all that a step leaves is what the model says: {} parameters, {} outputs",
                  reference.joint->params.size(), first.outputs.size()));
  return report;
}

}  // namespace tenon
