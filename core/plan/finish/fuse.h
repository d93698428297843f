// Neighbouring instructions become one where the kernels plugin has a kernel that does what they do: so a
// value between them need not go through memory.
#pragma once

#include <functional>

#include "plan/program/program.h"

namespace tenon {

// Whether the kernels plugin has a kernel for an instruction.
using HasKernel = std::function<bool(const Instr&)>;

// For an emitted program, before its memory and its waits are planned. What all ranks of a class agreed on
// before they agree on afterwards: it depends on the program and the plugin alone.
void fuse(Program& program, const HasKernel& has_kernel);

}  // namespace tenon
