// What a kernel writes: filled with a NaN of its own before the call, of which nothing may be left behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "plan/program/program.h"

namespace tenon {

struct WatchedOutput {
  char* at = nullptr;
  uint64_t bytes = 0;
  Dtype dtype = Dtype::f32;
  std::string what;  // for messages
};

struct UnwrittenElement {
  const WatchedOutput& output;
  uint64_t element = 0;
};

// Whether a kernel makes output `index` anew, of floating-point numbers: it neither adds to what is there nor
// has an operand in the same memory. `pointers` are those of the call.
bool is_made_anew(const Instr& kernel, size_t index, std::span<void* const> pointers);

// The NaN that fills them: no computation makes it but from itself, and no memory holds it but outputs that a
// kernel has left, for the first of these ends the step. So what a transfer left is not taken for it.
void spoil(std::span<const WatchedOutput> outputs);
// The first element that still holds it; all are looked at.
std::optional<UnwrittenElement> left_unwritten(std::span<const WatchedOutput> outputs);

}  // namespace tenon
