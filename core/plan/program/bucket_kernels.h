// The kernels behind instructions on buckets, whose parts depend on the rank.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "plan/program/program.h"

namespace tenon {

// What an instruction on the compute lane runs on one member of its layout: itself, unless it is of kind
// "norms" or "own_part", whose kernels lie in `storage`. No member: the largest kernels that any member could
// run. The optimizer's run none.
std::span<const Instr> kernels_of(const Program& program, const Instr& instr, std::optional<size_t> member,
                                  std::vector<Instr>& storage);

}  // namespace tenon
