// What a kernel writes: made NaN before its call, and looked at behind it.
#pragma once

#include <cstdint>
#include <span>

#include "plan/program/program.h"

namespace tenon {

struct WatchedOutput {
  char* at = nullptr;
  uint64_t bytes = 0;
  int index = 0;  // among the outputs
};

// Whether a kernel makes output `index` anew, of floating-point numbers: it neither adds to what is there nor
// has an operand in the same memory. `pointers` are those of the call.
bool is_made_anew(const Instr& kernel, size_t index, std::span<void* const> pointers);

void spoil(std::span<const WatchedOutput> outputs);
// The first output of which nothing seems to have been written: a look at a few elements. NULL: none.
const WatchedOutput* left_unwritten(std::span<const WatchedOutput> outputs);

}  // namespace tenon
