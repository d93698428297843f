#include "bench/peak/peak.h"

namespace tenon::bench {

extern const PeakLoops kBaselinePeak, kAvx2Peak, kAvx512Peak;

const PeakLoops& peak_loops(std::string_view isa) {
#if defined(__x86_64__)
  if (isa == kBaselinePeak.isa) return kBaselinePeak;
  const bool wide = __builtin_cpu_supports("avx512f") != 0;
  if (wide && isa != kAvx2Peak.isa) return kAvx512Peak;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return kAvx2Peak;
#endif
  return kBaselinePeak;
}

}  // namespace tenon::bench
