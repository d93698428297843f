// tenon_sdk/isa.hpp - one loop compiled for several instruction sets, chosen when it runs. Header-only.
//
// A rule is a struct with the loop's pointers and `void apply(uint64_t count) const`, which must be
// [[gnu::always_inline]], as must be all that it calls: run_on() then compiles it once for each set.
#pragma once

#include <cstdint>

namespace tenon::sdk {

enum class Isa { kBaseline, kAvx2, kAvx512 };

inline bool supported(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return __builtin_cpu_supports("avx512f") != 0;
  if (isa == Isa::kAvx2) return __builtin_cpu_supports("avx2") != 0;
#endif
  return isa == Isa::kBaseline;
}

inline Isa best_isa() {
  if (supported(Isa::kAvx512)) return Isa::kAvx512;
  return supported(Isa::kAvx2) ? Isa::kAvx2 : Isa::kBaseline;
}

template <class Rule>
void run_baseline(const Rule& rule, uint64_t count) {
  rule.apply(count);
}

#if defined(__x86_64__)
template <class Rule>
[[gnu::target("avx2")]] void run_avx2(const Rule& rule, uint64_t count) {
  rule.apply(count);
}

template <class Rule>
[[gnu::target("avx512f")]] void run_avx512(const Rule& rule, uint64_t count) {
  rule.apply(count);
}
#endif

// Runs rule.apply(count), compiled for an instruction set that is supported.
template <class Rule>
void run_on(Isa isa, const Rule& rule, uint64_t count) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return run_avx512(rule, count);
  if (isa == Isa::kAvx2) return run_avx2(rule, count);
#endif
  run_baseline(rule, count);
}

}  // namespace tenon::sdk
