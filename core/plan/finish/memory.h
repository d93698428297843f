// Offsets of all buffers: parameters, state and inputs one behind the other, the arena greedily by size
// over lifetimes that use happens-before across lanes.
#pragma once

#include "plan/program/program.h"

namespace tenon {

// Needs the waits. Sets Buffer::offset and Program::space_bytes.
void plan_memory(Program& program);

// Closed interval of time; hi < lo: never used. The compute lane's instruction k (from 1) is at 2k, what
// runs beside it on other lanes is at the odd times around it.
struct Lifetime {
  uint64_t lo = UINT64_MAX;
  uint64_t hi = 0;
  bool overlaps(const Lifetime& other) const { return lo <= other.hi && other.lo <= hi; }
};
// When each buffer is in use. Work on another lane extends from what it is known to start after to what
// is known to start after it, both excluded. What the step leaves behind lives for ever.
std::vector<Lifetime> lifetimes(const Program& program);

}  // namespace tenon
