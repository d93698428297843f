// When a run evaluates and saves: every so many steps, and behind the last one. `every` 0: never.
#pragma once

#include <cstdint>

namespace tenon {

inline bool due(int64_t every, int64_t step, int64_t last) {
  return every > 0 && (step % every == 0 || step == last);
}

// How many of the steps from `step` to `last`, both included, are due.
inline int64_t times_due(int64_t every, int64_t step, int64_t last) {
  if (every <= 0 || step > last) return 0;
  return last / every - (step - 1) / every + (last % every != 0 ? 1 : 0);
}

}  // namespace tenon
