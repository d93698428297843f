// How long a step of a V-shaped schedule takes, found without the plugins and without the core's simulation:
// from the algorithms as published and from an enumeration of greedy schedules, on a clock that ticks.
//
// All work of a stage takes one unit (F = I = W, a whole backward two), transfers none; a step on its own.
#pragma once

#include <cstdint>

namespace tenon::test {

// ZB-V as drawn in the paper, for microbatches >= 2 * ranks - 1.
int64_t published_zb_v(int ranks, int microbatches);

// The shortest of the 24 schedules in which each rank, at each tick, runs what it can by a fixed order of
// preference among forwards and input gradients down and up the V, with weight gradients when there is
// nothing else, and at most 2 * ranks activations in memory.
int64_t greedy_v(int ranks, int microbatches);

// No schedule over a V on this many ranks is shorter: the last rank has nothing to do before `ranks - 1`.
inline int64_t least_v(int ranks, int microbatches) { return int64_t{6} * microbatches + ranks - 1; }

// DualPipe, from both ends of 2 * ranks devices with `microbatches` from each end, of which DualPipe-V is one
// half: the other half does the same at the same time. For fewer than 2 * ranks microbatches from each end,
// those beyond are left out.
int64_t published_dualpipe(int ranks, int microbatches);

}  // namespace tenon::test
