// Offsets of all buffers: parameters, state and inputs one behind the other, the arena greedily by size
// over lifetimes that use happens-before across lanes.
#pragma once

#include "plan/program.h"

namespace tenon {

// Needs the waits. Sets Buffer::offset and Program::space_bytes.
void plan_memory(Program& program);

struct Lifetime {  // closed interval of compute-lane positions; hi < lo: never used
  uint32_t lo = UINT32_MAX;
  uint32_t hi = 0;
};
// When each buffer is in use, in positions on the compute lane. Work on another lane extends from what
// it is known to start after to what is known to start after it.
std::vector<Lifetime> lifetimes(const Program& program);

}  // namespace tenon
