#include "plan/program/contributions.h"

#include "graph/ops.h"

namespace tenon {
bool makes_loss(const Instr& instr) {
  const OpDef* def = find_kind(instr.kind);
  return def != nullptr && *def->loss != '\0';
}

bool adds_into(const Instr& instr, size_t output) {
  const OpDef* def = instr.accumulate ? find_kind(instr.kind) : nullptr;
  return instr.accumulate && (def == nullptr || def->out[output].accumulates);
}

}  // namespace tenon
