// A recipe's training program on a mesh of one rank, with the device that could run it, and no data.
#pragma once

#include <algorithm>

#include "base/rng.h"
#include "run/session.h"

namespace tenon::bench {

class OneRank {
 public:
  // `recipe` and `plugins` are borrowed. Every axis of the mesh becomes 1.
  static Result<std::unique_ptr<OneRank>> open(const Recipe& recipe, const PluginSet& plugins, int threads);
  ThreadPool& pool() { return *pool_; }
  const Program& program() const { return compiled_.of(0); }
  RankDevice& device() { return *device_; }

 private:
  std::unique_ptr<ThreadPool> pool_;
  Compiled compiled_;
  std::unique_ptr<RankDevice> device_;
};

// Made-up values, uniform in [low, high); they repeat after some thousand.
template <class Real>
void fill_real(Real* out, int64_t count, double low, double high) {
  constexpr int64_t kPeriod = 4096;
  const int64_t drawn = std::min(count, kPeriod);
  fill_uniform(1, 0, std::span(out, static_cast<size_t>(drawn)), low, high);
  for (int64_t i = drawn; i < count; i += kPeriod) std::copy_n(out, std::min(kPeriod, count - i), out + i);
}

}  // namespace tenon::bench
