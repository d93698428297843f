// What the machine can do at most, measured in the run that is judged by it.
#pragma once

#include "base/parallel.h"

namespace tenon::bench {

struct Probes {
  double flops;      // f32 multiply-adds of all threads at once, counted as two, per second
  double bandwidth;  // bytes per second of an in-place add over arrays far larger than the caches
};

// Nanoseconds for a cache line to go from one core to another: two virtual cores may share a cache or not,
// and it changes while they run. Takes some milliseconds.
double core_latency();

// Takes about half a second on the threads of the pool.
Probes probe(ThreadPool& pool);

}  // namespace tenon::bench
