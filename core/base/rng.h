// Random numbers as pure functions of (key, index): Philox4x32-10 of Salmon et al., "Parallel random numbers:
// as easy as 1, 2, 3" (SC 2011). There is no state, so any slice of a tensor can be generated alone, on any
// rank, with the same bits. Only IEEE basic operations are used (no libm), so the bits are those of every
// machine.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace tenon {

using PhiloxBlock = std::array<uint32_t, 4>;

// 128 random bits for a counter; word 0 of the counter and the low half of the key come first.
PhiloxBlock philox4x32(const PhiloxBlock& counter, uint64_t key);

// The index-th uniform number of a key: a multiple of 2^-53 in [0, 1).
double uniform_at(uint64_t key, uint64_t index);
// The index-th standard normal number of a key (Box-Muller; at most 8.58 in magnitude).
double normal_at(uint64_t key, uint64_t index);

// out[i] = element first_index + i (>= 0) of the sequence of `key`, computed in double and rounded once.
// Uniform in [low, high), and below high after rounding too; low < high.
void fill_uniform(uint64_t key, int64_t first_index, std::span<double> out, double low, double high);
void fill_uniform(uint64_t key, int64_t first_index, std::span<float> out, double low, double high);
// Normal with mean 0 and standard deviation `std`.
void fill_normal(uint64_t key, int64_t first_index, std::span<double> out, double std);
void fill_normal(uint64_t key, int64_t first_index, std::span<float> out, double std);

// A keyed bijection of [0, n), n >= 1, in O(1) memory: a Feistel network over the next power of two, walked
// until the value is inside. Outside [0, n) it is the identity. [thread-safe]
class Permutation {
 public:
  Permutation(uint64_t n, uint64_t key);
  uint64_t operator()(uint64_t i) const;
  uint64_t size() const { return size_; }

 private:
  uint64_t scramble(uint64_t i) const;

  uint64_t size_;
  uint64_t key_;
  uint32_t low_bits_;
  uint32_t low_mask_;
  uint32_t high_mask_;
};

}  // namespace tenon
