// A point in time that a wait may not pass. Monotonic clock.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace tenon::run {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  // timeout_ns < 0: never.
  explicit Deadline(int64_t timeout_ns) : never_(timeout_ns < 0), at_(Clock::now()) {
    // Capped at a year, so that "very long" cannot overflow.
    constexpr int64_t kYearNs = int64_t{365} * 24 * 3600 * 1000000000;
    if (!never_) at_ += std::chrono::nanoseconds(std::min(timeout_ns, kYearNs));
  }
  bool never() const { return never_; }
  bool passed() const { return !never_ && Clock::now() >= at_; }
  Clock::time_point at() const { return at_; }
  // < 0: never; 0: passed.
  int64_t remaining_ns() const {
    if (never_) return -1;
    return std::max<int64_t>(0, std::chrono::nanoseconds(at_ - Clock::now()).count());
  }
  // For poll(): rounded up, so that a loop does not spin through the last millisecond.
  int poll_ms() const {
    if (never_) return -1;
    return static_cast<int>(std::min<int64_t>((remaining_ns() + 999999) / 1000000, 1 << 30));
  }

 private:
  bool never_;
  Clock::time_point at_;
};

}  // namespace tenon::run
