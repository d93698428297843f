#include "plan/program/contributions.h"

#include "graph/ops.h"

namespace tenon {
namespace {

// The name of an output; "": the kind is none of the op table.
std::string_view output_name(const Instr& instr, size_t output) {
  const OpDef* def = find_kind(instr.kind);
  return def == nullptr ? std::string_view() : std::string_view(def->out[output].name);
}

}  // namespace

bool is_fused_head(const Instr& instr) { return instr.kind.starts_with("linear_cross_entropy"); }

bool makes_loss(const Instr& instr) {
  return instr.kind == "cross_entropy" || instr.kind == "cross_entropy_join" || instr.kind == "route_topk" ||
         is_fused_head(instr);
}

bool is_contribution(const Instr& instr, size_t output) {
  const std::string_view name = output_name(instr, output);
  if (instr.kind == "route_topk") return name == "aux";
  return !is_fused_head(instr) || name != "dx";
}

std::string contributing_op(const Instr& instr, size_t output) {
  if (!is_fused_head(instr)) return instr.kind;
  return output_name(instr, output) == "dw" ? "linear_wgrad" : "cross_entropy";
}

bool adds_into(const Instr& instr, size_t output) {
  const OpDef* def = instr.accumulate ? find_kind(instr.kind) : nullptr;
  return instr.accumulate && (def == nullptr || def->out[output].accumulates);
}

}  // namespace tenon
