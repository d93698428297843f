// tenon_sdk/comm/futex.hpp - sleeping until a word of memory changes: of this process, or shared with others.
// Linux. Header-only.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <ctime>

#include "tenon_sdk/comm/deadline.hpp"

namespace tenon::comm {

enum class Sharing { kProcess, kProcesses };

// True if woken or the value differs from `expected`, false after the deadline.
inline bool futex_wait(std::atomic<uint32_t>& word, uint32_t expected, const Deadline& deadline,
                       Sharing sharing) {
  timespec at{};
  if (deadline) {
    const auto ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(deadline->time_since_epoch()).count();
    at.tv_sec = ns / 1000000000;
    at.tv_nsec = ns % 1000000000;
  }
  const int operation = FUTEX_WAIT_BITSET | (sharing == Sharing::kProcess ? FUTEX_PRIVATE_FLAG : 0);
  const long rc = syscall(SYS_futex, &word, operation, expected, deadline ? &at : nullptr, nullptr,
                          FUTEX_BITSET_MATCH_ANY);
  return rc == 0 || errno != ETIMEDOUT;
}

inline void futex_wake_all(std::atomic<uint32_t>& word, Sharing sharing) {
  const int operation = FUTEX_WAKE | (sharing == Sharing::kProcess ? FUTEX_PRIVATE_FLAG : 0);
  syscall(SYS_futex, &word, operation, INT_MAX, nullptr, nullptr, 0);
}

// One waiter, many ringers. A sleep that has seen count c returns as soon as the count differs from c, so no
// ring is lost between looking at shared state and going to sleep. Two ways to use it:
//   ring() after each change        the waiter reads count(), looks, and sleeps
//   ring_if_announced() likewise    the waiter reads count(), announces, looks, sleeps and withdraws: then a
//                                   ring costs one load while nobody sleeps
class Bell {
 public:
  uint32_t count() const { return count_.load(std::memory_order_seq_cst); }
  void ring(Sharing sharing) {
    count_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) futex_wake_all(count_, sharing);
  }
  void ring_if_announced(Sharing sharing) {
    if (sleepers_.load(std::memory_order_seq_cst) != 0) ring(sharing);
  }
  void announce() { sleepers_.fetch_add(1, std::memory_order_seq_cst); }
  void withdraw() { sleepers_.fetch_sub(1, std::memory_order_seq_cst); }
  // Sleeps until a ring after `seen`. False after the deadline.
  bool sleep(uint32_t seen, const Deadline& deadline, Sharing sharing) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    bool in_time = true;
    while (in_time && count() == seen) in_time = futex_wait(count_, seen, deadline, sharing);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    return in_time || count() != seen;
  }

 private:
  std::atomic<uint32_t> count_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace tenon::comm
