// Ops whose algorithm itself communicates: what they become when the axes that they exchange over cut them.
// An expansion computes on all ranks what the op computes on one.
#pragma once

#include "graph/ops.h"
#include "plan/program/builder.h"

namespace tenon {

struct Expansion {
  const char* kind;
  // The axes that cut the op; none: it is emitted as a kernel.
  std::vector<AxisId> (*axes)(const Graph& graph, const Op& op);
  // `instr`: the op with its operands, as it would be on one rank.
  void (*emit)(ProgramBuilder& builder, Instr instr, const std::vector<AxisId>& axes);
};

// NULL: an op of this kind is a kernel.
const Expansion* find_expansion(std::string_view kind);

}  // namespace tenon
