#pragma once

#include <chrono>

namespace tenon {

// Of the steady clock, since some moment in the past.
inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace tenon
