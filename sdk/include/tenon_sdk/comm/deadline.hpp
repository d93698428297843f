// tenon_sdk/comm/deadline.hpp - timeouts of the comm interface: nanoseconds, below 0 for never. Header-only.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace tenon::comm {

using Clock = std::chrono::steady_clock;            // CLOCK_MONOTONIC, as futexes understand it
using Deadline = std::optional<Clock::time_point>;  // nothing: never

constexpr int64_t kMs = 1'000'000;  // in nanoseconds

inline Deadline deadline_in(int64_t timeout_ns) {
  if (timeout_ns < 0) return std::nullopt;
  constexpr int64_t kYearNs = int64_t{365} * 24 * 3600 * 1000000000;
  return Clock::now() + std::chrono::nanoseconds(std::min(timeout_ns, kYearNs));
}

inline bool passed(const Deadline& deadline) { return deadline && Clock::now() >= *deadline; }

// < 0: never; 0: passed.
inline int64_t remaining_ns(const Deadline& deadline) {
  if (!deadline) return -1;
  return std::max<int64_t>(0, std::chrono::nanoseconds(*deadline - Clock::now()).count());
}

// "1.500 s"
inline std::string seconds_text(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f s", static_cast<double>(ns) * 1e-9);
  return text;
}

}  // namespace tenon::comm
