#include "plan/program/contributions.h"

#include <sstream>

#include "graph/ops.h"

namespace tenon {
namespace {

// The name of an output; "": the kind is none of the op table.
std::string_view output_name(const Instr& instr, size_t output) {
  const OpDef* def = find_kind(instr.kind);
  return def == nullptr ? std::string_view() : std::string_view(def->out[output].name);
}

}  // namespace

bool makes_loss(const Instr& instr) {
  const OpDef* def = find_kind(instr.kind);
  return def != nullptr && *def->loss != '\0';
}

bool is_loss(const Instr& instr, size_t output) {
  return makes_loss(instr) && output_name(instr, output) == find_kind(instr.kind)->loss;
}

bool is_contribution(const Instr& instr, size_t output) {
  if (!makes_loss(instr)) return true;
  const OpDef& def = *find_kind(instr.kind);
  const OperandDef& out = def.out[output];
  return out.name == def.loss || out.name == def.count || out.accumulates;
}

std::string contributing_op(const Instr& instr, size_t output) {
  const OpDef* def = find_kind(instr.kind);
  std::istringstream parts(def == nullptr ? "" : def->parts);
  for (std::string part; parts >> part;) {
    if (find_operand(find_kind(part)->out, def->out[output].name)) return part;
  }
  return instr.kind;
}

bool adds_into(const Instr& instr, size_t output) {
  const OpDef* def = instr.accumulate ? find_kind(instr.kind) : nullptr;
  return instr.accumulate && (def == nullptr || def->out[output].accumulates);
}

}  // namespace tenon
