#include "mutation.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/finish/memory.h"
#include "plan/finish/waits.h"

namespace tenon::mutants {

std::span<const Mutation> mutations() {
  static const std::vector<Mutation> all = [] {
    std::vector<Mutation> out;
    for (const auto part : {list_mutations(), instr_mutations(), operand_mutations(), memory_mutations(),
                            program_mutations(), tensor_mutations(), layout_mutations(), pair_mutations()})
      out.insert(out.end(), part.begin(), part.end());
    return out;
  }();
  return all;
}

std::string called(const Program& program, InstrId id) {
  const Instr& instr = program.instrs[id];
  return fmt::format("instr {} ({}{}{})", id, instr.kind, instr.out.empty() ? "" : " ",
                     instr.out.empty() ? "" : instr.out[0].name);
}

int64_t other_number(int64_t value, size_t way) {
  switch (way) {
    case 0: return value + 1;
    case 1: return value - 1;
    case 2: return 2 * value;
    case 3: return -value;
    default: return value == 0 ? 1 << 20 : 0;
  }
}

size_t axes_ways(const Program& program, const std::vector<AxisId>& axes) {
  return axes.size() + program.mesh.axes.size() + 1 + axes.size() * program.mesh.axes.size();
}

std::string change_axes(const Program& program, std::vector<AxisId>& axes, size_t way) {
  const size_t n = axes.size(), all = program.mesh.axes.size();
  const std::vector<AxisId> before = axes;
  if (way < n) {
    axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(way));
  } else if (way < n + all) {
    axes.push_back(static_cast<AxisId>(way - n));
  } else if (way == n + all) {
    std::ranges::reverse(axes);
  } else {
    const size_t rest = way - n - all - 1;
    axes[rest / all] = static_cast<AxisId>(rest % all);
  }
  if (axes == before) return "";
  return fmt::format("axes {} -> {}", fmt::join(before, ","), fmt::join(axes, ","));
}

void erase_instr(Program& program, InstrId id) {
  program.instrs.erase(program.instrs.begin() + id);
  for (Instr& instr : program.instrs) {
    std::erase(instr.waits, id);
    for (InstrId& wait : instr.waits) wait -= wait > id ? 1 : 0;
  }
}

void insert_instr(Program& program, InstrId id, Instr added) {
  for (Instr& instr : program.instrs) {
    for (InstrId& wait : instr.waits) wait += wait >= id ? 1 : 0;
  }
  for (InstrId& wait : added.waits) wait += wait >= id ? 1 : 0;
  program.instrs.insert(program.instrs.begin() + id, std::move(added));
}

void replan(Program& program) {
  for (Instr& instr : program.instrs) instr.waits.clear();
  schedule_waits(program);
  plan_memory(program);
}

}  // namespace tenon::mutants
