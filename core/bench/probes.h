// What the machine can do at most, sampled between the calls that are judged by it.
#pragma once

#include "base/clock.h"
#include "base/options.h"
#include "base/parallel.h"
#include "bench/peak/peak.h"

namespace tenon::bench {

// 0 of nothing.
double median(std::vector<double> values);

struct Rates {
  double flops = 0;  // f32 multiply-adds of all threads at once, counted as two, per second
  double bytes = 0;  // of an in-place add over arrays far larger than the caches, per second
  double seconds(double flops_done, double bytes_moved) const;  // the floor: the larger of the two
};

// The instruction set that a plugin's option `isa` pins; "auto" if there is no such option.
std::string isa_of(const OptionValues& options);

class Probe {
 public:
  // Both must outlive it.
  Probe(ThreadPool& pool, const PeakLoop& peak);
  // Some milliseconds; leaves nothing else in the caches.
  void sample();
  // Of the samples since clear(): the most operations, as all that disturbs a loop in registers takes away
  // from it; the median bandwidth, which depends on where the cores are as that of kernels does.
  Rates rates() const;
  void clear();

 private:
  // Floats on huge pages, as devices allocate them.
  class Block {
   public:
    explicit Block(size_t floats);
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    float* data() const { return data_; }

   private:
    float* data_;
  };

  double multiply_adds_per_second();

  ThreadPool& pool_;
  const PeakLoop& peak_;
  const int64_t part_;  // floats of a thread
  Block x_, y_;
  std::vector<double> flops_, bytes_;
};

// a[i] += b[i] on all threads of the pool.
template <class Real>
void add_in_place(ThreadPool& pool, Real* a, const Real* b, int64_t count) {
  struct Job {
    Real* a;
    const Real* b;
    int64_t count, parts;
  } job{a, b, count, pool.num_threads()};
  pool.run(
      job.parts,
      [](void* arg, int64_t part) {
        typedef Real Vector __attribute__((vector_size(32), aligned(sizeof(Real)), may_alias));
        constexpr int64_t kLanes = sizeof(Vector) / sizeof(Real);
        const Job& j = *static_cast<Job*>(arg);
        int64_t i = j.count * part / j.parts;
        const int64_t end = j.count * (part + 1) / j.parts;
        for (; i + kLanes <= end; i += kLanes)
          *reinterpret_cast<Vector*>(j.a + i) += *reinterpret_cast<const Vector*>(j.b + i);
        for (; i < end; ++i) j.a[i] += j.b[i];
      },
      &job);
}

}  // namespace tenon::bench
