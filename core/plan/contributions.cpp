#include "plan/contributions.h"

namespace tenon {

bool makes_loss(const Instr& instr) {
  return instr.kind == "cross_entropy" || instr.kind == "cross_entropy_join" || instr.kind == "route_topk" ||
         instr.kind.starts_with("linear_cross_entropy");
}

bool is_contribution(const Instr& instr, size_t output) {
  const bool last = output + 1 == instr.out.size();
  if (instr.kind == "route_topk") return last;  // the auxiliary loss
  return instr.kind != "linear_cross_entropy_grad" || !last;
}

std::string contributing_op(const Instr& instr, size_t output) {
  if (!instr.kind.starts_with("linear_cross_entropy")) return instr.kind;
  return output < 2 ? "cross_entropy" : "linear_wgrad";
}

}  // namespace tenon
