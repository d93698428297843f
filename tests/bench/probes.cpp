#include "probes.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>

namespace tenon::bench {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Runs body(part) once on each thread of the pool; the shortest time of `trials`.
template <class Body>
double shortest(ThreadPool& pool, int trials, Body body) {
  double best = 1e30;
  for (int trial = 0; trial < trials; ++trial) {
    const double start = seconds_now();
    pool.run(
        pool.num_threads(), [](void* arg, int64_t part) { (*static_cast<Body*>(arg))(part); }, &body);
    best = std::min(best, seconds_now() - start);
  }
  return best;
}

constexpr int64_t kRounds = 500000;

// Independent chains of multiply-adds in registers; the widest vectors are split where a machine lacks them.
#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2,fma", "default")))
#endif
double
multiply_add() {
  constexpr int kChains = 12, kLanes = 16;
  typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));
  Vector x = Vector{} + 1.000001f, y = Vector{} + 0.5f, sum[kChains] = {};
  asm volatile("" : "+m"(x), "+m"(y));
  for (Vector& s : sum) asm volatile("" : "+m"(s));  // else the chains are one and the same
  for (int64_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (Vector& s : sum) s = s * x + y;
  }
  for (Vector& s : sum) asm volatile("" : : "m"(s));
  return 2.0 * kChains * kLanes * static_cast<double>(kRounds);
}

double peak_flops(ThreadPool& pool) {
  double operations = 0;
  const double time = shortest(pool, 12, [&](int64_t part) {
    const double done = multiply_add();
    if (part == 0) operations = done;
  });
  return operations * pool.num_threads() / time;
}

// Floats on huge pages, as devices allocate them.
class Block {
 public:
  explicit Block(size_t n) : data_(static_cast<float*>(std::aligned_alloc(kHuge, n * sizeof(float)))) {
    if (data_ == nullptr) throw std::bad_alloc();
    madvise(data_, n * sizeof(float), MADV_HUGEPAGE);
    std::fill_n(data_, n, 1.0f);
  }
  ~Block() { std::free(data_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  float* data() const { return data_; }

 private:
  static constexpr size_t kHuge = size_t{2} << 20;  // n is a multiple of it
  float* data_;
};

double peak_bandwidth(ThreadPool& pool) {
  const int64_t n = int64_t{16} << 20, threads = pool.num_threads();
  const Block x(static_cast<size_t>(n * threads)), y(static_cast<size_t>(n * threads));
  const double time = shortest(pool, 8, [&](int64_t part) {
    typedef float Vector __attribute__((vector_size(32)));
    Vector* a = reinterpret_cast<Vector*>(x.data() + part * n);
    const Vector* b = reinterpret_cast<const Vector*>(y.data() + part * n);
    for (int64_t i = 0; i < n / 8; ++i) a[i] += b[i];
  });
  return 3.0 * sizeof(float) * static_cast<double>(n * threads) / time;
}

}  // namespace

double core_latency() {
  constexpr int kRounds = 20000;
  std::atomic<int> turn{0};
  const auto play = [&turn](int me) {
    for (int i = 0; i < kRounds; ++i) {
      while (turn.load(std::memory_order_acquire) != 2 * i + me) {
      }
      turn.store(2 * i + me + 1, std::memory_order_release);
    }
  };
  const double start = seconds_now();
  std::thread other([&] { play(1); });
  play(0);
  other.join();
  return (seconds_now() - start) / (2.0 * kRounds) * 1e9;
}

Probes probe(ThreadPool& pool) { return {peak_flops(pool), peak_bandwidth(pool)}; }

}  // namespace tenon::bench
