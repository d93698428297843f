// The loops themselves; a file for each instruction set defines TENON_PEAK_ISA, TENON_PEAK_LOOPS and
// TENON_VECTOR_BYTES, and includes this. It calls nothing: an inline function of a library would be compiled
// with instructions that other machines lack, and linked into all the rest.
#include "bench/peak/peak.h"

namespace tenon::bench {
namespace {

typedef float Vector __attribute__((vector_size(TENON_VECTOR_BYTES)));
constexpr int64_t kLanes = TENON_VECTOR_BYTES / sizeof(float);

// Independent chains, enough to hide the latency of four cycles on two ports; with both operands they fit the
// 16 registers of AVX2. A vector wider than the machine's would be split, and the chains be spilled.
double multiply_adds() {
  constexpr int kChains = 12;
  constexpr int kRounds = 200000;  // some 300 us, against 20 to start the threads
  Vector x = Vector{} + 1.000001f, y = Vector{} + 0.5f, sum[kChains] = {};
  asm volatile("" : "+m"(x), "+m"(y));
  for (Vector& s : sum) asm volatile("" : "+m"(s));  // else the chains are one and the same
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (Vector& s : sum) s = s * x + y;
  }
  for (Vector& s : sum) asm volatile("" : : "m"(s));
  return 2.0 * kChains * kLanes * kRounds;
}

void add(float* a, const float* b, int64_t count) {
  typedef float Unaligned __attribute__((vector_size(TENON_VECTOR_BYTES), aligned(4), may_alias));
  for (int64_t i = 0; i < count; i += kLanes)
    *reinterpret_cast<Unaligned*>(a + i) += *reinterpret_cast<const Unaligned*>(b + i);
}

}  // namespace

extern const PeakLoops TENON_PEAK_LOOPS;
constinit const PeakLoops TENON_PEAK_LOOPS = {TENON_PEAK_ISA, multiply_adds, add};

}  // namespace tenon::bench
