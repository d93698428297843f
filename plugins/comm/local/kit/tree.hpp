// Reductions in the fixed binary tree of tenon/comm.h:
//   tree(lo, n) = n == 1 ? x[lo] : tree(lo, p) + tree(lo + p, n - p),  p = largest power of two below n
// element by element, so the bits depend on the members' values and their number alone, never on how an array
// is cut. max and min give NaN when any value is NaN. Integer sums wrap. Compiled into each comm plugin, with
// -O3.
#pragma once

#include <cstdint>

namespace tenon::comm {

// outs[k][0, count) = tree over sources[0..n)[0, count), for every k. An out may be the same memory as a
// source, at the same place. Pointers are aligned to the element.
using Reducer = void (*)(const void* const* sources, int n, uint64_t count, void* const* outs, int num_outs);

// NULL: not offered. u8 has no sum (it would wrap at 255); bf16 and f16 have none (rounding at every node).
Reducer find_reducer(uint32_t reduce, uint32_t dtype);

}  // namespace tenon::comm
