// The choice of an instruction set at run time, and the sizes of scratch that suit them all.
#include <iterator>
#include <string>
#include <string_view>

#include "loops.h"
#include "tenon_sdk/plugin.hpp"

namespace tenon::kernels::cpu {

#ifdef TENON_CPU_X86
extern const LoopTable kAvx2;
extern const LoopTable kAvx512;
#endif

namespace {

struct Level {
  const LoopTable* table;
  bool available;
};

}  // namespace

const LoopTable& select_loops(const char* isa) {
  const std::string_view wanted = isa;
  const Level levels[] = {
#ifdef TENON_CPU_X86
      {&kAvx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")},
      {&kAvx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")},
#endif
      {&kBaseline, true},
  };
  for (const Level& level : levels) {
    if (wanted == "auto" ? level.available : wanted == level.table->isa) {
      if (level.available) return *level.table;
      break;
    }
  }
  throw sdk::Failure(TENON_E_UNSUPPORTED, "kernels/cpu: option isa = " + std::string(wanted) +
                                              ": this machine lacks these instructions; use 'auto'");
}

int64_t attention_scratch(int64_t keys, int64_t width) {
  const int64_t ld = round_up(width, kMaxLanes), padded = round_up(keys, kBlock);
  return padded * ld * 2 + kBlock * (2 * ld + kRun + 2) + 8 * kMaxLanes;
}

int64_t attention_dgrad_scratch(int64_t keys, int64_t width) {
  const int64_t ld = round_up(width, kMaxLanes), padded = round_up(keys, kBlock);
  return padded * ld * 5 + kBlock * (3 * ld + 2 * kRun + 1) + 12 * kMaxLanes;
}

}  // namespace tenon::kernels::cpu
