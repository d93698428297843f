// Ops that compute each element by itself: one entry of kElementwise is all that such an op needs here. Its
// formula has the operands of the op in their order as vectors, and the op's attributes as scalars.
#pragma once

#include "loops.h"
#include "simd_math.h"

namespace tenon::kernels::cpu::TENON_ISA {
namespace {

template <class T>
struct Elementwise {
  using V = Vec<T>;
  using Formula = void(const T* attrs, const V* in, V* out);

  // x/2 (1 + tanh(z)) = x * sigmoid(2z), z = sqrt(2/pi) (x + 0.044715 x^3)
  static TENON_INLINE void gelu(const T*, const V* in, V* out) {
    out[0] = in[0] * sigmoid<T>(gelu_inner(in[0])).s;
  }

  // d/dx x s(2z) = s + x s (1 - s) 2z'
  static TENON_INLINE void gelu_dgrad(const T*, const V* in, V* out) {
    constexpr T kScale = static_cast<T>(2 * kGeluScale), kCubic = static_cast<T>(6 * kGeluScale * kGeluCubic);
    const V g = in[0], a = in[1];
    const Sigmoid<T> f = sigmoid<T>(gelu_inner(a));
    out[0] = g * (f.s + a * (f.e * f.s * f.s) * (kScale + kCubic * a * a));
  }

  static TENON_INLINE void swiglu(const T*, const V* in, V* out) {
    const V g = in[0], u = in[1];
    out[0] = g * sigmoid<T>(g).s * u;
  }

  static TENON_INLINE void swiglu_dgrad(const T*, const V* in, V* out) {
    const V g = in[0], a = in[1], u = in[2];
    const Sigmoid<T> f = sigmoid<T>(a);
    out[0] = g * u * f.s * (T{1} + a * (f.e * f.s));
    out[1] = g * a * f.s;
  }

  static TENON_INLINE void softcap(const T* attrs, const V* in, V* out) {
    out[0] = attrs[0] * tanh<T>(in[0] * (1 / attrs[0]));
  }

  // 1 - tanh^2(x/c) = 4 s(2x/c) (1 - s(2x/c))
  static TENON_INLINE void softcap_dgrad(const T* attrs, const V* in, V* out) {
    const Sigmoid<T> f = sigmoid<T>(in[1] * (2 / attrs[0]));
    out[0] = in[0] * (T{4} * (f.e * f.s * f.s));
  }

  // The formula over n elements; all outputs of a vector are computed before one is stored, as an output may
  // share an input's memory.
  template <int kIn, int kOut, Formula* kFormula>
  static void run(const T* const* in, T* const* out, const T* attrs, int64_t n) {
    const T* from[kIn];
    T* to[kOut];
    for (int j = 0; j < kIn; ++j) from[j] = in[j];
    for (int k = 0; k < kOut; ++k) to[k] = out[k];
    V x[kIn], y[kOut];
    int64_t i = 0;
    for (; i + kLanes<T> <= n; i += kLanes<T>) {
      for (int j = 0; j < kIn; ++j) x[j] = load(from[j] + i);
      kFormula(attrs, x, y);
      for (int k = 0; k < kOut; ++k) store<T>(to[k] + i, y[k]);
    }
    if (i == n) return;
    for (int j = 0; j < kIn; ++j) x[j] = load_part(from[j] + i, n - i);
    kFormula(attrs, x, y);
    for (int k = 0; k < kOut; ++k) store_part<T>(to[k] + i, y[k], n - i);
  }

 private:
  static constexpr double kGeluScale = 0.79788456080286535588, kGeluCubic = 0.044715;

  static TENON_INLINE V gelu_inner(V a) {
    constexpr T kScale = static_cast<T>(2 * kGeluScale), kCubic = static_cast<T>(2 * kGeluScale * kGeluCubic);
    return a * (kScale + kCubic * a * a);
  }
};

template <class T, class E = Elementwise<T>>
constexpr ElementLoop<T> kElementwise[] = {
    {"gelu", E::template run<1, 1, E::gelu>},
    {"gelu_dgrad", E::template run<2, 1, E::gelu_dgrad>},
    {"swiglu", E::template run<2, 1, E::swiglu>},
    {"softcap", E::template run<1, 1, E::softcap>},
    {"softcap_dgrad", E::template run<2, 1, E::softcap_dgrad>},
    {"swiglu_dgrad", E::template run<3, 2, E::swiglu_dgrad>},
};

}  // namespace
}  // namespace tenon::kernels::cpu::TENON_ISA
