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
  // The same over arrays that it has just gone over, of size_of_step(i) bytes together; empty if not sampled.
  std::vector<double> again;

  static double size_of_step(size_t i);
  // The floor: the larger of the two. seconds() is of who finds nothing in the caches; seconds_again() of who
  // finds there what fits, of at least half as many bytes as it moves.
  double seconds(double flops_done, double bytes_moved) const;
  double seconds_again(double flops_done, double bytes_moved) const;
};

// The instruction set that a plugin's option `isa` pins; "auto" if there is no such option.
std::string isa_of(const OptionValues& options);

class Probe {
 public:
  // Both must outlive it.
  Probe(ThreadPool& pool, const PeakLoops& peak);
  // Some milliseconds; leaves nothing else in the caches.
  void sample();
  // Some tens of milliseconds more: Rates::again.
  void sample_again();
  // The most of the samples since clear(): all that disturbs them takes away from them.
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
  double adds_per_second(int64_t count, int64_t repeats);  // bytes; `count` floats of each array, so often

  ThreadPool& pool_;
  const PeakLoops& peak_;
  const int64_t part_;  // floats of a thread
  Block x_, y_;
  Rates rates_;
};

// a[i] += b[i].
template <class Real>
void add(Real* a, const Real* b, int64_t count) {
  typedef Real Vector __attribute__((vector_size(32), aligned(sizeof(Real)), may_alias));
  constexpr int64_t kLanes = sizeof(Vector) / sizeof(Real);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    *reinterpret_cast<Vector*>(a + i) += *reinterpret_cast<const Vector*>(b + i);
  for (; i < count; ++i) a[i] += b[i];
}

}  // namespace tenon::bench
