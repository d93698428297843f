// Which outputs of kernels are sums over microbatches: contributions to the loss, the count and gradients.
#pragma once

#include "plan/program/program.h"

namespace tenon {

// Whether an output is a share of the loss.
bool makes_loss(const Instr& instr);
// Whether that output is one.
bool is_loss(const Instr& instr, size_t output);
// Whether an output of an instruction that contributes is such a contribution.
bool is_contribution(const Instr& instr, size_t output);
// The op that an output is a contribution of: microbatches may have it fused or not.
std::string contributing_op(const Instr& instr, size_t output);
// Whether the instruction adds to what an output holds, instead of overwriting it.
bool adds_into(const Instr& instr, size_t output);

}  // namespace tenon
