// What a kernel does to its outputs beyond writing them, as its row of the op table says.
#pragma once

#include "plan/program/program.h"

namespace tenon {

// Whether an output is a share of the loss.
bool makes_loss(const Instr& instr);
// Whether the instruction adds to what an output holds, instead of overwriting it.
bool adds_into(const Instr& instr, size_t output);

}  // namespace tenon
