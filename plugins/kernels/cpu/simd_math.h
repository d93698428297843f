// exp, tanh, sigmoid, sine and cosine of vectors. Round-to-nearest is assumed.
#pragma once

#include "simd.h"

namespace tenon::kernels::cpu::TENON_ISA {
namespace {

template <class T>
struct ExpConstants;
template <>
struct ExpConstants<float> {
  static constexpr float kMagic = 0x1.8p23f;  // adding it leaves the rounded integer in the low bits
  static constexpr float kLog2e = 0x1.715476p0f, kLn2Hi = 0x1.62e4p-1f, kLn2Lo = 0x1.7f7d1cp-20f;
  static constexpr float kLow = -86.9897f, kHigh = 88.8f;  // ln of 2^-125.5, and beyond the largest
  static constexpr int kMantissa = 23, kBias = 127, kDegree = 7;
};
template <>
struct ExpConstants<double> {
  static constexpr double kMagic = 0x1.8p52;
  static constexpr double kLog2e = 0x1.71547652b82fep0, kLn2Hi = 0x1.62e42fefap-1,
                          kLn2Lo = 0x1.cf79abc9e3b39p-40;
  static constexpr double kLow = -708.0499, kHigh = 709.9;
  static constexpr int kMantissa = 52, kBias = 1023, kDegree = 13;
};
constexpr double kInverseFactorial[] = {1.0,
                                        1.0,
                                        1.0 / 2,
                                        1.0 / 6,
                                        1.0 / 24,
                                        1.0 / 120,
                                        1.0 / 720,
                                        1.0 / 5040,
                                        1.0 / 40320,
                                        1.0 / 362880,
                                        1.0 / 3628800,
                                        1.0 / 39916800,
                                        1.0 / 479001600,
                                        1.0 / 6227020800.0,
                                        1.0 / 87178291200.0,
                                        1.0 / 1307674368000.0,
                                        1.0 / 20922789888000.0,
                                        1.0 / 355687428096000.0};

// The lower of x and a limit; x where it is NaN. And p 2^n for whole n, 0 where x < low.
#if defined(__x86_64__) && TENON_VECTOR_BYTES == 64
TENON_INLINE Vec<float> at_most(Vec<float> x, float high) {
  return (Vec<float>)_mm512_maskz_min_ps(0xffff, _mm512_set1_ps(high), (__m512)x);
}
TENON_INLINE Vec<double> at_most(Vec<double> x, double high) {
  return (Vec<double>)_mm512_maskz_min_pd(0xff, _mm512_set1_pd(high), (__m512d)x);
}
TENON_INLINE Vec<float> scale(Vec<float> p, Vec<float> n, Vec<float> x, float low) {
  const __mmask16 kept = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(low), _CMP_NLT_UQ);
  return (Vec<float>)_mm512_maskz_scalef_ps(kept, (__m512)p, (__m512)n);
}
TENON_INLINE Vec<double> scale(Vec<double> p, Vec<double> n, Vec<double> x, double low) {
  const __mmask8 kept = _mm512_cmp_pd_mask((__m512d)x, _mm512_set1_pd(low), _CMP_NLT_UQ);
  return (Vec<double>)_mm512_maskz_scalef_pd(kept, (__m512d)p, (__m512d)n);
}
#else
template <class V, class T>
TENON_INLINE V at_most(V x, T high) {
  return x > high ? V{} + high : x;
}
template <class V, class T>
TENON_INLINE V scale(V p, V n, V x, T low) {
  using C = ExpConstants<T>;
  using Bits = typename Simd<T>::Bits;
  // 2^(n-1), doubled afterwards, so that n = bias + 1 does not overflow.
  const V power =
      reinterpret_cast<V>((reinterpret_cast<Bits>(n + C::kMagic) + (C::kBias - 1)) << C::kMantissa);
  return x < low ? V{} : p * power * T{2};
}
#endif

// x = n ln(2) + r with whole n, |r| <= ln(2)/2; and the Taylor polynomial of (e^r - 1) / r.
template <class T>
struct ExpParts {
  Vec<T> n, r, p;
};
template <class T>
TENON_INLINE ExpParts<T> exp_parts(Vec<T> x) {
  using C = ExpConstants<T>;
  const Vec<T> limited = at_most(x, C::kHigh);
  const Vec<T> n = (limited * C::kLog2e + C::kMagic) - C::kMagic;
  const Vec<T> r = limited - n * C::kLn2Hi - n * C::kLn2Lo;
  Vec<T> p = splat(static_cast<T>(kInverseFactorial[C::kDegree]));
#pragma GCC unroll 16
  for (int i = C::kDegree - 1; i >= 1; --i) p = p * r + static_cast<T>(kInverseFactorial[i]);
  return {n, r, p};
}

// e^x = 2^n e^r: within 1e-7 (float), 4e-16 (double) relative.
// 0 below 2^-125.5 (float), 2^-1021.5 (double), inf above the largest number, NaN of NaN.
template <class T>
TENON_INLINE Vec<T> exp(Vec<T> x) {
  const ExpParts<T> of = exp_parts<T>(x);
  return scale(of.p * of.r + T{1}, of.n, x, ExpConstants<T>::kLow);
}

// tanh(x) = t / (t + 2), t = e^2x - 1: near 0 as accurate as elsewhere, relative to the result, for there n
// is 0 and nothing cancels.
template <class T>
TENON_INLINE Vec<T> tanh(Vec<T> x) {
  constexpr T kLimit = 40;  // of 2x, beyond which the result is 1 or -1
  const Vec<T> low = x < -kLimit / 2 ? splat(-kLimit) : T{2} * x;
  const Vec<T> twice = low > kLimit ? splat(kLimit) : low;
  const ExpParts<T> of = exp_parts<T>(twice);
  const Vec<T> power = scale(splat(T{1}), of.n, twice, ExpConstants<T>::kLow);
  const Vec<T> t = power * (of.p * of.r) + (power - T{1});
  return t / (t + T{2});
}

// e = exp(-x), s = 1 / (1 + e) the sigmoid of x; 1 - s = e * s without cancellation.
template <class T>
struct Sigmoid {
  Vec<T> e, s;
};
template <class T>
TENON_INLINE Sigmoid<T> sigmoid(Vec<T> x) {
  constexpr T kLimit = 80;  // keeps e finite, so that e * s is a number
  const Vec<T> low = x < -kLimit ? splat(-kLimit) : x;
  const Vec<T> limited = low > kLimit ? splat(kLimit) : low;
  const Vec<T> e = exp<T>(-limited);
  return {e, T{1} / (T{1} + e)};
}

// Sine and cosine: x = n pi/2 + r with pi/2 in three parts, good to 1e-15 absolute for |x| < 1e6.
struct SinCos {
  Vec<double> sin, cos;
};
TENON_INLINE SinCos sincos(Vec<double> x) {
  using Bits = Simd<double>::Bits;
  constexpr double kMagic = ExpConstants<double>::kMagic;
  const Vec<double> shifted = x * 0x1.45f306dc9c883p-1 + kMagic;
  const Vec<double> n = shifted - kMagic;
  const Vec<double> r = x - n * 0x1.921fb544p0 - n * 0x1.0b4611a6p-34 - n * 0x1.3198a2e037073p-69;
  const Vec<double> r2 = r * r;
  Vec<double> s = splat(kInverseFactorial[17]), c = splat(kInverseFactorial[16]);
#pragma GCC unroll 8
  for (int i = 15; i >= 1; i -= 2) {
    s = kInverseFactorial[i] - s * r2;
    c = kInverseFactorial[i - 1] - c * r2;
  }
  s *= r;
  const Bits quadrant = reinterpret_cast<Bits>(shifted) & 3;
  const Bits odd = (quadrant & 1) != 0;
  const Vec<double> sin_abs = odd ? c : s, cos_abs = odd ? s : c;
  return {(quadrant & 2) != 0 ? -sin_abs : sin_abs, ((quadrant + 1) & 2) != 0 ? -cos_abs : cos_abs};
}

}  // namespace
}  // namespace tenon::kernels::cpu::TENON_ISA
