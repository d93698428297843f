// Loops of multiply-adds in registers: what the cores can do at most, with each instruction set that kernels
// come in.
#pragma once

#include <string_view>

namespace tenon::bench {

struct PeakLoop {
  const char* isa;  // as a plugin's option `isa` names it
  double (*run)();  // some 300 us; the f32 operations that were done, a multiply-add counted as two
};

// The loop for "avx512", "avx2" or "baseline"; for anything else, or where the machine lacks the
// instructions, the widest that it has.
const PeakLoop& peak_loop(std::string_view isa);

}  // namespace tenon::bench
