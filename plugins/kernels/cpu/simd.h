// Vectors of one instruction set, as compiler extensions. Compiled once per instruction set: the
// including file defines TENON_ISA (a namespace) and TENON_VECTOR_BYTES.
// Invariant of this and the other *_loops.h headers: everything has internal linkage and calls no inline
// function of the C++ library. Otherwise the linker could keep the AVX-512 copy of a function that
// baseline code calls too.
#pragma once

#include <cstdint>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tenon::kernels::cpu::TENON_ISA {
namespace {

#define TENON_INLINE inline __attribute__((always_inline))

template <class T>
struct Simd;
template <>
struct Simd<float> {
  typedef float Vector __attribute__((vector_size(TENON_VECTOR_BYTES)));
  typedef float Memory __attribute__((vector_size(TENON_VECTOR_BYTES), aligned(4), may_alias));
  typedef int32_t Bits __attribute__((vector_size(TENON_VECTOR_BYTES)));
  using Scalar = float;
};
template <>
struct Simd<double> {
  typedef double Vector __attribute__((vector_size(TENON_VECTOR_BYTES)));
  typedef double Memory __attribute__((vector_size(TENON_VECTOR_BYTES), aligned(8), may_alias));
  typedef int64_t Bits __attribute__((vector_size(TENON_VECTOR_BYTES)));
  using Scalar = double;
};
template <class T>
using Vec = typename Simd<T>::Vector;
template <class T>
constexpr int64_t kLanes = TENON_VECTOR_BYTES / static_cast<int64_t>(sizeof(T));

template <class T>
TENON_INLINE Vec<T> load(const T* p) {
  return *reinterpret_cast<const typename Simd<T>::Memory*>(p);
}
template <class T>
TENON_INLINE void store(T* p, Vec<T> v) {
  *reinterpret_cast<typename Simd<T>::Memory*>(p) = v;
}
template <class T>
TENON_INLINE Vec<T> splat(T x) {
  return Vec<T>{} + x;
}
// The first n elements, at most all; the other lanes are 0.
template <class T>
TENON_INLINE Vec<T> load_part(const T* p, int64_t n) {
  if (n == kLanes<T>) return load(p);
  T part[kLanes<T>] = {};
  for (int64_t i = 0; i < n; ++i) part[i] = p[i];
  return load(part);
}
template <class T>
TENON_INLINE void store_part(T* p, Vec<T> v, int64_t n) {
  if (n == kLanes<T>) return store<T>(p, v);
  for (int64_t i = 0; i < n; ++i) p[i] = v[i];
}

typedef uint64_t Words __attribute__((vector_size(TENON_VECTOR_BYTES)));
// Products of the low 32 bits of each lane. The instruction has to be named: a plain 64-bit product costs
// three times as much.
TENON_INLINE Words multiply_low(Words a, Words b) {
#if defined(__x86_64__) && TENON_VECTOR_BYTES == 64
  return (Words)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b);
#elif defined(__x86_64__) && TENON_VECTOR_BYTES == 32
  return (Words)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__x86_64__)
  return (Words)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

// Shuffles between blocks of kHalf lanes: a block with its neighbour, the even blocks of a and b, the odd
// ones.
template <class T>
using Lanes = std::make_integer_sequence<int64_t, kLanes<T>>;
template <int64_t kHalf, class V, int64_t... I>
TENON_INLINE V swap_blocks(V v, std::integer_sequence<int64_t, I...>) {
  return __builtin_shufflevector(v, v, (I ^ kHalf)...);
}
template <int64_t kHalf, class V, int64_t... I>
TENON_INLINE V join_low(V a, V b, std::integer_sequence<int64_t, I...>) {
  return __builtin_shufflevector(a, b, ((I & kHalf) == 0 ? I : int64_t{sizeof...(I)} + I - kHalf)...);
}
template <int64_t kHalf, class V, int64_t... I>
TENON_INLINE V join_high(V a, V b, std::integer_sequence<int64_t, I...>) {
  return __builtin_shufflevector(a, b, ((I & kHalf) == 0 ? I + kHalf : int64_t{sizeof...(I)} + I)...);
}

// Sum and maximum over the lanes, as a fixed tree of halves.
template <class T, int64_t kHalf = kLanes<T> / 2>
TENON_INLINE T sum_lanes(Vec<T> v) {
  if constexpr (kHalf == 0) {
    return v[0];
  } else {
    return sum_lanes<T, kHalf / 2>(v + swap_blocks<kHalf>(v, Lanes<T>{}));
  }
}
template <class T, int64_t kHalf = kLanes<T> / 2>
TENON_INLINE T max_lanes(Vec<T> v) {
  if constexpr (kHalf == 0) {
    return v[0];
  } else {
    const Vec<T> other = swap_blocks<kHalf>(v, Lanes<T>{});
    return max_lanes<T, kHalf / 2>(v > other ? v : other);
  }
}

// y[i] = f(x[i]...) in vectors; the tail goes through the same instructions. y may be one of x.
template <class T, class F, class... X>
TENON_INLINE void map(int64_t n, T* y, F&& f, const X*... x) {
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) store<T>(y + i, f(load(x + i)...));
  if (i < n) store_part<T>(y + i, f(load_part(x + i, n - i)...), n - i);
}

// sum_i f(x[i]...), where f of zeros is 0: two running vectors, then a tree.
template <class T, class F, class... X>
TENON_INLINE T reduce(int64_t n, F&& f, const X*... x) {
  Vec<T> even{}, odd{};
  int64_t i = 0;
  for (; i + 2 * kLanes<T> <= n; i += 2 * kLanes<T>) {
    even += f(load(x + i)...);
    odd += f(load(x + i + kLanes<T>)...);
  }
  if (i + kLanes<T> <= n) {
    even += f(load(x + i)...);
    i += kLanes<T>;
  }
  if (i < n) odd += f(load_part(x + i, n - i)...);
  return sum_lanes<T>(even + odd);
}

}  // namespace
}  // namespace tenon::kernels::cpu::TENON_ISA
