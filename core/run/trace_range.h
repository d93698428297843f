#pragma once

#include <cstdint>

namespace tenon {

// Steps, counted from 1. None by default.
struct TraceRange {
  int64_t first = 1, last = 0;
  bool any() const { return last >= first; }
};

}  // namespace tenon
