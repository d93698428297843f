// What the cores can do at most, with each instruction set that kernels come in: multiply-adds in registers,
// and an in-place add.
#pragma once

#include <cstdint>
#include <string_view>

namespace tenon::bench {

struct PeakLoops {
  const char* isa;            // as a plugin's option `isa` names it
  double (*multiply_adds)();  // some 300 us; the f32 operations that were done, a multiply-add counted as two
  void (*add)(float* a, const float* b, int64_t count);  // a[i] += b[i]; `count` is a multiple of 16
};

// The loops for "avx512", "avx2" or "baseline"; for anything else, or where the machine lacks the
// instructions, for the widest that it has.
const PeakLoops& peak_loops(std::string_view isa);

}  // namespace tenon::bench
