// Work in two phases within one parallel_for: waking threads twice would cost more than a small product.
#pragma once

#include <atomic>
#include <cstdint>

namespace tenon::kernels::cpu {

// Every item of the first phase is done before any of the second begins. Whoever runs it takes items until
// none is left, so that one thread alone can do all.
class Phases {
 public:
  Phases(int64_t first, int64_t second) : first_(first), second_(second) {}

  // To be called by any number of threads; returns when no item is left to take.
  template <class First, class Second>
  void run(First&& first, Second&& second) {
    for (int64_t i = next_first_++; i < first_; i = next_first_++) {
      first(i);
      if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == first_) done_.notify_all();
    }
    wait_for_first();
    for (int64_t i = next_second_++; i < second_; i = next_second_++) second(i);
  }

 private:
  // What is missing is being done by threads that run now, and takes microseconds.
  void wait_for_first() const {
    constexpr int kSpins = 2000;
    for (int i = 0; i < kSpins && done_.load(std::memory_order_acquire) != first_; ++i) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    for (int64_t done = done_.load(std::memory_order_acquire); done != first_;) {
      done_.wait(done, std::memory_order_acquire);
      done = done_.load(std::memory_order_acquire);
    }
  }

  int64_t first_, second_;
  std::atomic<int64_t> next_first_{0}, done_{0}, next_second_{0};
};

}  // namespace tenon::kernels::cpu
