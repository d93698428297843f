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
  if (!std::ranges::is_sorted(instr.axes)) {  // members are numbered by rank, and parts by the axes as listed
    return refuse("V002", "lists its axes in another order than ranks are numbered", where(program, id));
  }
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

Status check_own_transfers(const Program& program) {
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

Status check_symmetric(const std::vector<Interface>& classes) {
  if (classes.size() == 1) return {};
  std::vector<std::vector<Transfer>> crossing;  // of one rank for each class, numbered as the classes are
  for (const Interface& one : classes) crossing.push_back(one.transfers);
  return check_transfers(crossing);
}

Status check_symmetric(const std::vector<Program>& programs) {
  for (const Program& program : programs) TENON_CHECK(check_own_transfers(program));
  return check_symmetric(interfaces_of(programs));
}

namespace {

constexpr int64_t kBruteForceWorld = 64;

// What each rank of a class does, into `lists` by rank.
void list_ranks(const Program& program, std::vector<std::vector<Transfer>>& lists) {
  const AxisId axis = program.pipeline_axis;
  for (int64_t rank = 0; rank < std::ssize(lists); ++rank) {
    const int64_t at = axis == kNone ? 0 : program.mesh.coordinate(rank)[axis];
    if (at == program.class_index) lists[static_cast<size_t>(rank)] = transfers_of(program, rank);
  }
}

}  // namespace

Status check_every_rank(const std::vector<Program>& programs) {
  std::vector<std::vector<Transfer>> lists(static_cast<size_t>(programs.front().mesh.world()));
  for (const Program& program : programs) list_ranks(program, lists);
  return check_transfers(lists);
}

struct Verifier::State {
  explicit State(const Reference& given) : reference(given), meaning(given) {}

  const Reference& reference;
  Meaning meaning;
  std::vector<Interface> classes;
  std::vector<std::vector<Transfer>> ranks;  // none in a large world
  size_t proved = 0, instrs = 0, buffers = 0, outputs = 0;
};

Verifier::Verifier(const Reference& reference) : state_(std::make_unique<State>(reference)) {
  const int64_t world = reference.mesh.world();
  if (world <= kBruteForceWorld) state_->ranks.resize(static_cast<size_t>(world));
}

Verifier::~Verifier() = default;

Status Verifier::look(const Program& program) {
  TENON_CHECK(check_own_transfers(program));
  list_ranks(program, state_->ranks);
  state_->classes.push_back(interface_of(program));
  return {};
}

const std::vector<Interface>& Verifier::classes() const { return state_->classes; }

Status Verifier::prove(const Program& program) {
  TENON_CHECK(check_memory(program));
  TENON_CHECK(check_uses(program));
  TENON_CHECK(check_windows(program));
  TENON_CHECK(check_races(program));
  TENON_CHECK(state_->meaning.check(program));
  ++state_->proved;
  state_->instrs += program.instrs.size();
  state_->buffers += program.buffers.size();
  state_->outputs = program.outputs.size();
  return {};
}

Status Verifier::prove_together() const {
  TENON_CHECK(check_symmetric(state_->classes));
  if (!state_->ranks.empty()) TENON_CHECK(check_transfers(state_->ranks));
  return check_classes(state_->classes, state_->reference);
}

VerifyReport Verifier::report() const {
  const State& all = *state_;
  const std::string which = all.proved == all.classes.size() ? ""
                                                             : fmt::format(", of {} of {} classes of ranks",
                                                                           all.proved, all.classes.size());
  VerifyReport out;
  out.passed.push_back(
      fmt::format("transfers match and cannot deadlock, {} ranks by symmetry", all.reference.mesh.world()));
  if (!all.ranks.empty())
    out.passed.push_back(
        fmt::format("the same, every rank run: {} transfers on rank 0", all.ranks.front().size()));
  out.passed.push_back(
      fmt::format("no races, no read before a write, peak memory: {} instructions, {} buffers{}", all.instrs,
                  all.buffers, which));
  out.passed.push_back(
      fmt::format("all that a step leaves is what the model says: {} parameters, {} outputs{}",
                  all.reference.joint->params.size(), all.outputs, which));
  return out;
}

Result<VerifyReport> verify(const std::vector<Program>& programs, const Reference& reference) {
  TENON_CHECK(check_form(programs));
  if (programs.front().mesh.axes != reference.mesh.axes)
    return refuse("V007", "is for another mesh", programs.front().name + " program");
  Verifier verifier(reference);
  for (const Program& program : programs) TENON_CHECK(verifier.look(program));
  TENON_CHECK(verifier.prove_together());
  for (const Program& program : programs) TENON_CHECK(verifier.prove(program));
  return verifier.report();
}

}  // namespace tenon
