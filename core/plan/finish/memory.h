// Offsets of all buffers: parameters, state and inputs one behind the other, the arena greedily by size
// over lifetimes that use happens-before (Order).
#pragma once

#include "plan/program/program.h"

namespace tenon {

// Needs the waits. Sets Buffer::offset and Program::space_bytes.
void plan_memory(Program& program);

// Closed interval of the list; hi < lo: never used.
struct Lifetime {
  uint64_t lo = UINT64_MAX;
  uint64_t hi = 0;
  bool overlaps(const Lifetime& other) const { return lo <= other.hi && other.lo <= hi; }
};
// When each buffer is in use: from the first instruction that touches it to the last; by a transfer until
// something waits for it. What the step leaves behind lives for ever.
std::vector<Lifetime> lifetimes(const Program& program);

}  // namespace tenon
