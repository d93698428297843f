#include "plan/contributions.h"

namespace tenon {
namespace {

constexpr const char* kHeadGradients =
    "linear_cross_entropy_grad";  // loss, count, weight's and input's gradient
constexpr size_t kWeightGradient = 2;

}  // namespace

bool is_fused_head(const Instr& instr) { return instr.kind.starts_with("linear_cross_entropy"); }

bool makes_loss(const Instr& instr) {
  return instr.kind == "cross_entropy" || instr.kind == "cross_entropy_join" || instr.kind == "route_topk" ||
         is_fused_head(instr);
}

bool is_contribution(const Instr& instr, size_t output) {
  const bool last = output + 1 == instr.out.size();
  if (instr.kind == "route_topk") return last;  // the auxiliary loss
  return instr.kind != kHeadGradients || !last;
}

std::string contributing_op(const Instr& instr, size_t output) {
  if (!is_fused_head(instr)) return instr.kind;
  return output < kWeightGradient ? "cross_entropy" : "linear_wgrad";
}

bool adds_into(const Instr& instr, size_t output) {
  return instr.accumulate && (instr.kind != kHeadGradients || output == kWeightGradient);
}

}  // namespace tenon
