#include "probes.h"

#include <algorithm>
#include <chrono>
#include <vector>

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

double peak_bandwidth(ThreadPool& pool) {
  const int64_t n = int64_t{16} << 20, threads = pool.num_threads();
  std::vector<float> x(static_cast<size_t>(n * threads), 1), y(static_cast<size_t>(n * threads), 1);
  const double time = shortest(pool, 6, [&](int64_t part) {
    float* a = x.data() + part * n;
    const float* b = y.data() + part * n;
    for (int64_t i = 0; i < n; ++i) a[i] += b[i];
  });
  return 3.0 * sizeof(float) * static_cast<double>(n * threads) / time;
}

}  // namespace

Probes probe(ThreadPool& pool) { return {peak_flops(pool), peak_bandwidth(pool)}; }

}  // namespace tenon::bench
