// Inputs that every rank can compute for every other rank, and the serial answer to every collective. The
// tree here is written from the text of tenon/comm.h and shares nothing with the plugins.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "tenon/comm.h"

namespace tenon::test {

using Bytes = std::vector<std::byte>;

inline size_t size_of(uint32_t dtype) {
  constexpr size_t kSizes[] = {8, 4, 2, 2, 8, 4, 1};
  return kSizes[dtype];
}

inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Magnitudes differ by 2^20, so that another order of addition gives other bits.
inline double real_value(uint64_t h) {
  const double unit = static_cast<double>(h >> 11) * 0x1p-53 - 0.5;
  return std::ldexp(unit, static_cast<int>(h % 21) - 10);
}

template <class T>
void put(Bytes& bytes, size_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
}

template <class T>
T at(const Bytes& bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
  return value;
}

inline float from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// To nearest even. Finite values only.
inline uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t upper = bits >> 16, lower = bits & 0xffff;
  const bool up = lower > 0x8000 || (lower == 0x8000 && upper % 2 == 1);
  return static_cast<uint16_t>(upper + (up ? 1 : 0));
}

// What `rank` contributes under `seed`.
inline Bytes input(uint32_t dtype, uint64_t count, uint64_t seed, int rank) {
  Bytes out(count * size_of(dtype));
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t h = mix(seed * 1000003 + static_cast<uint64_t>(rank) * 7919 + i * 104729);
    switch (dtype) {
      case TENON_F64: put(out, i, real_value(h)); break;
      case TENON_F32: put(out, i, static_cast<float>(real_value(h))); break;
      case TENON_I64: put(out, i, static_cast<int64_t>(h)); break;
      case TENON_I32: put(out, i, static_cast<int32_t>(h)); break;
      case TENON_U8: put(out, i, static_cast<uint8_t>(h)); break;
      case TENON_BF16: put(out, i, to_bf16(static_cast<float>(real_value(h)))); break;
      default: put(out, i, static_cast<uint16_t>(h)); break;
    }
  }
  return out;
}

template <class T>
T combine(uint32_t reduce, T a, T b) {
  if (reduce == TENON_MAX) return a > b ? a : b;
  if (reduce == TENON_MIN) return a < b ? a : b;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
  } else {
    return a + b;
  }
}

template <class T>
T tree(const std::vector<Bytes>& x, uint32_t reduce, size_t lo, size_t n, size_t i) {
  if (n == 1) return at<T>(x[lo], i);
  size_t p = 1;
  while (2 * p < n) p *= 2;
  return combine(reduce, tree<T>(x, reduce, lo, p, i), tree<T>(x, reduce, lo + p, n - p, i));
}

template <class T>
Bytes reduce_typed(const std::vector<Bytes>& x, uint32_t reduce) {
  Bytes out(x[0].size());
  for (size_t i = 0; i < out.size() / sizeof(T); ++i) put(out, i, tree<T>(x, reduce, 0, x.size(), i));
  return out;
}

// In f32, rounded once.
inline Bytes reduce_bf16(const std::vector<Bytes>& x, uint32_t reduce) {
  std::vector<Bytes> wide;
  for (const Bytes& bytes : x) {
    Bytes& w = wide.emplace_back(bytes.size() * 2);
    for (size_t i = 0; i < bytes.size() / 2; ++i) put(w, i, from_bf16(at<uint16_t>(bytes, i)));
  }
  const Bytes sums = reduce_typed<float>(wide, reduce);
  Bytes out(x[0].size());
  for (size_t i = 0; i < out.size() / 2; ++i) put(out, i, to_bf16(at<float>(sums, i)));
  return out;
}

// The reduction of all members' arrays, which have equal sizes.
inline Bytes reduce_all(const std::vector<Bytes>& x, uint32_t reduce, uint32_t dtype) {
  switch (dtype) {
    case TENON_F64: return reduce_typed<double>(x, reduce);
    case TENON_F32: return reduce_typed<float>(x, reduce);
    case TENON_I64: return reduce_typed<int64_t>(x, reduce);
    case TENON_I32: return reduce_typed<int32_t>(x, reduce);
    case TENON_U8: return reduce_typed<uint8_t>(x, reduce);
    case TENON_BF16: return reduce_bf16(x, reduce);
    default: throw std::logic_error("no reference reduction for dtype " + std::to_string(dtype));
  }
}

inline Bytes slice(const Bytes& bytes, size_t begin, size_t size) {
  const auto at_begin = bytes.begin() + static_cast<std::ptrdiff_t>(begin);
  return Bytes(at_begin, at_begin + static_cast<std::ptrdiff_t>(size));
}

// Throws with the first difference.
inline void expect_bytes(const Bytes& got, const Bytes& expected, const std::string& what) {
  if (got.size() != expected.size()) throw std::runtime_error(what + ": size differs");
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] != expected[i]) throw std::runtime_error(what + ": byte " + std::to_string(i) + " differs");
  }
}

}  // namespace tenon::test
