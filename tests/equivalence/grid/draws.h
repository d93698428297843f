// Choices drawn from a seed: the same ones on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace tenon::test {

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}

  // In [0, n).
  int below(int n) { return static_cast<int>(uniform_at(seed_, next_++) * n); }
  // In [low, high].
  int between(int low, int high) { return low + below(high - low + 1); }
  bool coin() { return below(2) == 1; }
  template <class T>
  T one_of(const std::vector<T>& values) {
    return values[static_cast<size_t>(below(static_cast<int>(values.size())))];
  }
  template <class T>
  std::vector<T> shuffled(std::vector<T> values) {
    for (int i = static_cast<int>(values.size()); i > 1; --i)
      std::swap(values[static_cast<size_t>(i - 1)], values[static_cast<size_t>(below(i))]);
    return values;
  }

 private:
  uint64_t seed_, next_ = 0;
};

}  // namespace tenon::test
