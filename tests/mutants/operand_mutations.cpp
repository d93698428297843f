// What instructions read and write: other operands of the same size (any microbatch, layer or place), by
// address alone, by what the operand claims alone, and by both; and each field of an operand.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "mutation.h"

namespace tenon::mutants {
namespace {
namespace of_operand {

using Programs = std::vector<Program>;
using List = std::vector<Operand> Instr::*;

// -- others of the same size ------------------------------------------------------------------------

// All that the programs' instructions touch, each once, by bytes.
using BySize = std::map<uint64_t, std::vector<Operand>>;

std::shared_ptr<const BySize> operands_by_size(const Program& program) {
  auto out = std::make_shared<BySize>();
  std::set<std::tuple<BufferId, uint64_t, std::string, std::vector<int64_t>>> known;
  const auto add = [&](const Operand& operand) {
    if (operand.buffer == kNone) return;
    if (known.insert({operand.buffer, operand.offset, operand.name, operand.dims}).second)
      (*out)[operand.bytes()].push_back(operand);
  };
  for (const Instr& instr : program.instrs) {
    for (const Operand& operand : instr.in) add(operand);
    for (const Operand& operand : instr.out) add(operand);
  }
  for (const auto& set : program.inputs) {
    for (const auto& [name, operand] : set) add(operand);
  }
  for (const auto* tensors : {&program.params, &program.states}) {
    for (const TensorInfo& tensor : *tensors) add(tensor.operand);
  }
  return out;
}

const std::vector<Operand>& as_large(const BySize& all, const Operand& operand) {
  static const std::vector<Operand> kNone;
  const auto found = all.find(operand.bytes());
  return found == all.end() ? kNone : found->second;
}

enum class Take : uint8_t { address, claim, address_and_claim, all };

std::string take(Operand& operand, const Operand& other, Take what) {
  const Operand before = operand;
  if (what == Take::all) operand = other;
  if (what != Take::claim) {
    operand.buffer = other.buffer;
    operand.offset = other.offset;
  }
  if (what != Take::address) operand.name = other.name;
  const bool same = operand.buffer == before.buffer && operand.offset == before.offset &&
                    operand.name == before.name && operand.dims == before.dims &&
                    operand.dtype == before.dtype;
  return same ? "" : fmt::format("'{}' for '{}'", other.name, before.name);
}

// For each operand of a list of each instruction that `wanted` holds for, all others as large.
template <class Wanted>
Sites redirects(const Program& program, List list, Take what, bool anew, Wanted wanted) {
  const auto all = operands_by_size(program);
  Sites out;
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    for (size_t i = 0; i < (program.instrs[id].*list).size(); ++i) {
      if (!wanted(program.instrs[id], i)) continue;
      const size_t ways = as_large(*all, (program.instrs[id].*list)[i]).size();
      if (ways == 0) continue;
      out.push_back({ways, [=](Program& changed, size_t way) {
                       Operand& operand = (changed.instrs[id].*list)[i];
                       const std::string done = take(operand, as_large(*all, operand)[way], what);
                       if (!done.empty() && anew) replan(changed);
                       return done.empty() ? done
                                           : fmt::format("{}: operand {}: {}", called(changed, id), i, done);
                     }});
    }
  }
  return out;
}

template <List list, Take what, bool anew = false>
Sites redirected(const Programs& programs, size_t which) {
  return redirects(programs[which], list, what, anew, [](const Instr&, size_t) { return true; });
}

Sites scales(const Programs& programs, size_t which) {
  return redirects(programs[which], &Instr::in, Take::address, false,
                   [](const Instr& instr, size_t i) { return instr.kind == "update" && i == 1; });
}

// -- their number and order -------------------------------------------------------------------------

template <List list>
Sites listed(const Programs& programs, size_t which) {
  return at_instrs(
      programs[which], [](const Instr& instr) { return list_ways(instr.*list); },
      [](Program& program, InstrId id, size_t way) { return change_list(program.instrs[id].*list, way); });
}

// -- their fields -----------------------------------------------------------------------------------

// Every operand of every instruction.
template <class Ways, class Change>
Sites at_operands(const Program& program, Ways ways, Change change) {
  Sites out;
  for (const List list : {&Instr::in, &Instr::out}) {
    for (InstrId id = 0; id < program.instrs.size(); ++id) {
      for (size_t i = 0; i < (program.instrs[id].*list).size(); ++i) {
        const size_t n = ways((program.instrs[id].*list)[i]);
        if (n == 0) continue;
        out.push_back({n, [=](Program& changed, size_t way) {
                         Operand& operand = (changed.instrs[id].*list)[i];
                         const std::string before = operand.name, where = called(changed, id);
                         const std::string what = change(changed, operand, way);
                         return what.empty() ? what : fmt::format("{}: '{}': {}", where, before, what);
                       }});
      }
    }
  }
  return out;
}

Sites buffers(const Programs& programs, size_t which) {
  const size_t n = programs[which].buffers.size();
  return at_operands(
      programs[which], [n](const Operand&) { return n + 2; },
      [n](Program&, Operand& operand, size_t way) -> std::string {
        const BufferId other = way == n + 1 ? kNone : static_cast<BufferId>(way);
        if (operand.buffer == other) return "";
        operand.buffer = other;
        return fmt::format("buffer {}", other);
      });
}

constexpr int64_t kOffsets[] = {64, -64, 8, -8, 4, 1, 1 << 30, INT64_MIN};

Sites offsets(const Programs& programs, size_t which) {
  return at_operands(
      programs[which], [](const Operand&) { return std::size(kOffsets); },
      [](Program&, Operand& operand, size_t way) {
        operand.offset += static_cast<uint64_t>(kOffsets[way]);
        return fmt::format("offset by {}", kOffsets[way]);
      });
}

constexpr Dtype kDtypes[] = {Dtype::f64, Dtype::f32, Dtype::bf16, Dtype::i64, Dtype::i32, Dtype::u8};

Sites dtypes(const Programs& programs, size_t which) {
  return at_operands(
      programs[which], [](const Operand&) { return std::size(kDtypes); },
      [](Program&, Operand& operand, size_t way) -> std::string {
        if (operand.dtype == kDtypes[way]) return "";
        operand.dtype = kDtypes[way];
        return std::string("dtype ") + name_of(operand.dtype);
      });
}

constexpr size_t kDimWays = 8;

std::string change_dims(Extents& shared, size_t way) {
  const Extents before = shared;
  std::vector<int64_t> dims = before;
  const bool some = !dims.empty();
  switch (way) {
    case 0: dims.push_back(1); break;
    case 1: dims.insert(dims.begin(), 2); break;
    case 2: std::ranges::reverse(dims); break;
    default: break;
  }
  if (some && way == 3) dims.pop_back();
  if (some && way == 4) ++dims[0];
  if (some && way == 5) --dims.back();
  if (some && way == 6) dims[0] = -dims[0];
  if (dims.size() > 1 && way == 7) {
    dims[1] *= dims[0];
    dims.erase(dims.begin());
  }
  shared = dims;
  return shared == before ? "" : fmt::format("[{}] -> [{}]", fmt::join(before, " "), fmt::join(dims, " "));
}

Sites dims(const Programs& programs, size_t which) {
  return at_operands(
      programs[which], [](const Operand&) { return kDimWays; },
      [](Program&, Operand& operand, size_t way) { return change_dims(operand.dims, way); });
}

Sites names(const Programs& programs, size_t which) {
  return at_operands(
      programs[which], [](const Operand&) { return size_t{2}; },
      [](Program&, Operand& operand, size_t way) {
        operand.name = way == 0 ? std::string("no such name") : operand.name + ".other";
        return "'" + operand.name.get() + "'";
      });
}

// -- workspaces -------------------------------------------------------------------------------------

Sites workspaces(const Programs& programs, size_t which) {
  const auto all = operands_by_size(programs[which]);
  std::vector<Operand> others;
  for (const Instr& instr : programs[which].instrs) {
    if (instr.workspace.buffer != kNone && others.size() < 8) others.push_back(instr.workspace);
  }
  for (const auto& [bytes, some] : *all) others.push_back(some.front());
  const auto shared = std::make_shared<const std::vector<Operand>>(std::move(others));
  return at_instrs(
      programs[which], [shared](const Instr&) { return shared->size() + 3; },
      [shared](Program& program, InstrId id, size_t way) -> std::string {
        Operand& workspace = program.instrs[id].workspace;
        const Operand before = workspace;
        const size_t n = shared->size();
        if (way < n) workspace = (*shared)[way];
        if (way == n) workspace = Operand();
        const bool sized = !workspace.dims.empty();
        if (way == n + 1 && sized) workspace.dims.change([](auto& dims) { dims[0] /= 2; });
        if (way == n + 2 && sized) workspace.dims.change([](auto& dims) { dims[0] *= 2; });
        const bool same = workspace.buffer == before.buffer && workspace.offset == before.offset &&
                          workspace.dims == before.dims;
        return same ? "" : fmt::format("workspace '{}' of {} bytes", workspace.name, workspace.bytes());
      });
}

constexpr Mutation kMutations[] = {
    {"Instr.in", "another's address", redirected<&Instr::in, Take::address>},
    {"Instr.in", "another's claim", redirected<&Instr::in, Take::claim>},
    {"Instr.in", "another's address and claim", redirected<&Instr::in, Take::address_and_claim>},
    {"Instr.in", "another", redirected<&Instr::in, Take::all>},
    {"Instr.in", "another, planned anew", redirected<&Instr::in, Take::all, true>},
    {"Instr.in", "another scale of an update", scales},
    {"Instr.in", "left out, repeated, exchanged", listed<&Instr::in>},
    {"Instr.out", "another's address", redirected<&Instr::out, Take::address>},
    {"Instr.out", "another's claim", redirected<&Instr::out, Take::claim>},
    {"Instr.out", "another's address and claim", redirected<&Instr::out, Take::address_and_claim>},
    {"Instr.out", "another", redirected<&Instr::out, Take::all>},
    {"Instr.out", "another, planned anew", redirected<&Instr::out, Take::all, true>},
    {"Instr.out", "left out, repeated, exchanged", listed<&Instr::out>},
    {"Instr.workspace", "another, or none", workspaces},
    {"Operand.buffer", "another", buffers},
    {"Operand.offset", "another", offsets},
    {"Operand.dtype", "another", dtypes},
    {"Operand.dims", "others", dims},
    {"Operand.name", "another", names},
};

}  // namespace of_operand
}  // namespace

std::span<const Mutation> operand_mutations() { return of_operand::kMutations; }

}  // namespace tenon::mutants
