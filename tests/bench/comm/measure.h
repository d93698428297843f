// How every contestant measures an all-reduce of f32 in place, so that they differ in the all-reduce alone.
//
// Before each call every rank writes its whole buffer, as a backward pass would: a loop over buffers that
// nobody touches would find each slice in the cache of the core that reduced it the last time. The time of a
// call is that of the slowest rank; the result is the median over calls.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace tenon::bench {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// As many calls as take about `seconds`, at least 7.
inline int calls_for(uint64_t bytes, double seconds) {
  const double per_call = 2e-6 + static_cast<double>(bytes) / 5e8;  // writing included
  return static_cast<int>(std::clamp(seconds / per_call, 7.0, 2000.0));
}

// One contestant, as one rank sees it.
class Contestant {
 public:
  virtual ~Contestant() = default;
  virtual float* buffer(uint64_t bytes) = 0;  // the same for all calls of a size
  virtual void barrier() = 0;
  virtual void all_reduce(uint64_t bytes) = 0;
  // Of every rank's value, to all.
  virtual double max(double value) = 0;
  int rank = 0, world = 1;
};

// The median seconds of a call. Throws on a wrong result.
inline double measure(Contestant& c, uint64_t bytes, int calls) {
  float* data = c.buffer(bytes);
  const uint64_t count = bytes / sizeof(float);
  std::vector<double> times;
  for (int i = -3; i < calls; ++i) {  // the first ones warm up
    const float mine = static_cast<float>(i + 10 + c.rank);
    for (uint64_t k = 0; k < count; ++k) data[k] = mine;
    c.barrier();
    const double start = now();
    c.all_reduce(bytes);
    const double taken = now() - start;
    const float expected = static_cast<float>(c.world * (i + 10) + c.world * (c.world - 1) / 2);
    for (const uint64_t k : {uint64_t{0}, count / 3, count / 2, count - 1}) {
      if (data[k] != expected) throw std::runtime_error("wrong sum at " + std::to_string(k));
    }
    const double slowest = c.max(taken);
    if (i >= 0) times.push_back(slowest);
  }
  return median(times);
}

// Prints "<name> <world> <bytes> <seconds>" for each size.
inline void run(Contestant& c, const std::string& name, const std::vector<uint64_t>& sizes, double seconds) {
  for (const uint64_t bytes : sizes) {
    const double taken = measure(c, bytes, calls_for(bytes, seconds));
    if (c.rank == 0)
      std::printf("%s %d %llu %.9f\n", name.c_str(), c.world, static_cast<unsigned long long>(bytes), taken);
  }
}

// "1024,4096"
inline std::vector<uint64_t> parse_sizes(const std::string& text) {
  std::vector<uint64_t> out;
  for (size_t at = 0; at < text.size();
       at = text.find(',', at) == std::string::npos ? text.size() : text.find(',', at) + 1)
    out.push_back(std::stoull(text.substr(at)));
  return out;
}

}  // namespace tenon::bench
