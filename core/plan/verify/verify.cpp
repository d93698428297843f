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

// Sends and receives are between two classes, a broadcast comes from one member of its axis, a permutation's
// peer is its shift, the others name none; and what crosses classes is over the pipeline's axis alone, for
// within a class all ranks run one list.
bool peers_fit(const Program& program, const Instr& instr) {
  const bool crosses = std::ranges::count(instr.axes, program.pipeline_axis) > 0;
  if (crosses && instr.axes.size() > 1) return false;
  const TransferKind kind = transfer_of(instr);
  if (kind == TransferKind::permute) return true;
  if (!is_one_way(kind) && kind != TransferKind::broadcast) return instr.peer == -1;
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

}  // namespace

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
  std::vector<std::vector<Transfer>> crossing;  // of one rank for each class, numbered as the classes are
  for (const Program& program : programs) crossing.push_back(transfers_between_classes(program));
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
    TENON_CHECK(check_windows(program));
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
