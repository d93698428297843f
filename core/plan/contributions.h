// Which outputs of kernels are sums over microbatches: contributions to the loss, the count and gradients.
#pragma once

#include "plan/program.h"

namespace tenon {

bool makes_loss(const Instr& instr);
// Whether an output of an instruction that contributes is such a contribution.
bool is_contribution(const Instr& instr, size_t output);
// The op that an output is a contribution of: microbatches may have it fused or not.
std::string contributing_op(const Instr& instr, size_t output);

}  // namespace tenon
