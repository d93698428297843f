// Neighbouring instructions become one where the kernels plugin has a kernel that does what they do: so a
// value between them need not go through memory.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "plan/program/program.h"

namespace tenon {

// Whether the kernels plugin has a kernel for an instruction.
using HasKernel = std::function<bool(const Instr&)>;

// Whether sums may become part of the kernel that makes an addend. One that sums in blocks has other bits
// then, and which instructions are neighbours depends on the number of microbatches: not in exact mode.
enum class Sums { in_kernels, apart };

struct FuseLimits {
  Sums sums = Sums::in_kernels;
  // Kinds whose kernel somebody has chosen: it runs, and becomes part of no other kind, unless that one's
  // kernel was chosen too.
  std::set<std::string> chosen = {};
};

// For an emitted program, before its memory and its waits are planned. What all ranks of a class agreed on
// before they agree on afterwards: it depends on the program and the plugin alone.
void fuse(Program& program, const FuseLimits& limits, const HasKernel& has_kernel);

}  // namespace tenon
