// Loops over rows and elements: norms, bias, sums, softmax, rope, dropout.
#pragma once

#include "simd_math.h"

namespace tenon::kernels::cpu::TENON_ISA {
namespace {

template <class T>
struct Rows {
  using V = Vec<T>;

  static void layernorm(const T* x, const T* w, const T* b, T* y, T* mean, T* rstd, int64_t rows,
                        int64_t width, double eps) {
    const T inverse = static_cast<T>(1.0 / static_cast<double>(width));
    for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
      const T m = reduce<T>(
                      width, [](V a) { return a; }, x) *
                  inverse;
      T variance = 0;
      {  // the tail is padded with the mean, not with 0
        V sum{};
        int64_t i = 0;
        for (; i + kLanes<T> <= width; i += kLanes<T>) {
          const V d = load(x + i) - m;
          sum += d * d;
        }
        T rest = 0;
        for (; i < width; ++i) rest += (x[i] - m) * (x[i] - m);
        variance = (sum_lanes<T>(sum) + rest) * inverse;
      }
      const T r = static_cast<T>(1.0 / __builtin_sqrt(static_cast<double>(variance) + eps));
      map<T>(
          width, y, [m, r](V a, V g, V c) { return (a - m) * r * g + c; }, x, w, b);
      mean[row] = m;
      rstd[row] = r;
    }
  }

  static void layernorm_dgrad(const T* dy, const T* x, const T* w, const T* mean, const T* rstd, T* dx,
                              int64_t rows, int64_t width, bool add) {
    const T inverse = static_cast<T>(1.0 / static_cast<double>(width));
    for (int64_t row = 0; row < rows; ++row, x += width, dy += width, dx += width) {
      const T m = mean[row], r = rstd[row];
      const T sum_g = reduce<T>(
                          width, [](V g, V k) { return g * k; }, dy, w) *
                      inverse;
      const T sum_gx = reduce<T>(
                           width, [m, r](V g, V k, V a) { return g * k * ((a - m) * r); }, dy, w, x) *
                       inverse;
      put(
          width, dx, add, [=](V g, V k, V a) { return (g * k - sum_g - (a - m) * r * sum_gx) * r; }, dy, w,
          x);
    }
  }

  static void layernorm_wgrad(const T* dy, const T* x, const T* mean, const T* rstd, T* dw, T* db,
                              int64_t rows, int64_t width) {
    clear(dw, width);
    clear(db, width);
    for (int64_t row = 0; row < rows; ++row, x += width, dy += width) {
      const T m = mean[row], r = rstd[row];
      map<T>(
          width, dw, [m, r](V sum, V g, V a) { return sum + g * ((a - m) * r); }, dw, dy, x);
      map<T>(
          width, db, [](V sum, V g) { return sum + g; }, db, dy);
    }
  }

  static void rmsnorm(const T* x, const T* w, T* y, T* rstd, int64_t rows, int64_t width, double eps) {
    const double inverse = 1.0 / static_cast<double>(width);
    for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
      const double squares = reduce<T>(
          width, [](V a) { return a * a; }, x);
      const T r = static_cast<T>(1.0 / __builtin_sqrt(squares * inverse + eps));
      map<T>(
          width, y, [r](V a, V g) { return a * r * g; }, x, w);
      rstd[row] = r;
    }
  }

  static void rmsnorm_dgrad(const T* dy, const T* x, const T* w, const T* rstd, T* dx, int64_t rows,
                            int64_t width, bool add) {
    const T inverse = static_cast<T>(1.0 / static_cast<double>(width));
    for (int64_t row = 0; row < rows; ++row, x += width, dy += width, dx += width) {
      const T r = rstd[row];
      const T sum = reduce<T>(
                        width, [r](V g, V k, V a) { return g * k * (a * r); }, dy, w, x) *
                    inverse;
      put(
          width, dx, add, [r, sum](V g, V k, V a) { return (g * k - a * r * sum) * r; }, dy, w, x);
    }
  }

  static void rmsnorm_wgrad(const T* dy, const T* x, const T* rstd, T* dw, int64_t rows, int64_t width) {
    clear(dw, width);
    for (int64_t row = 0; row < rows; ++row, x += width, dy += width) {
      const T r = rstd[row];
      map<T>(
          width, dw, [r](V sum, V g, V a) { return sum + g * (a * r); }, dw, dy, x);
    }
  }

  static void bias_add(const T* x, const T* bias, T* y, int64_t rows, int64_t width) {
    for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
      map<T>(
          width, y, [](V a, V c) { return a + c; }, x, bias);
    }
  }

  static void sum_rows(const T* x, T* sum, int64_t rows, int64_t width) {
    clear(sum, width);
    for (int64_t row = 0; row < rows; ++row, x += width) {
      map<T>(
          width, sum, [](V s, V a) { return s + a; }, sum, x);
    }
  }

  static void combine(const T* x, T* y, int64_t parts, int64_t stride, int64_t n, bool add) {
    const auto total = [&](int64_t i, int64_t count) {
      V sum{};
      for (int64_t part = 0; part < parts; ++part) {
        const T* at = x + part * stride + i;
        sum += count == kLanes<T> ? load(at) : load_part(at, count);
      }
      return sum;
    };
    for (int64_t i = 0; i < n; i += kLanes<T>) {
      const int64_t count = n - i < kLanes<T> ? n - i : kLanes<T>;
      V sum = total(i, count);
      if (add) sum = load_part(y + i, count) + sum;
      store_part<T>(y + i, sum, count);
    }
  }

  static void add(const T* x, const T* y, T* z, int64_t n) {
    map<T>(
        n, z, [](V a, V b) { return a + b; }, x, y);
  }

  // In double, for float is too short for a norm over millions of elements.
  static double sqnorm(const T* x, int64_t n) {
    constexpr int64_t kWide = kLanes<double>;
    Vec<double> sum[4] = {};
    int64_t i = 0;
    for (; i + 4 * kWide <= n; i += 4 * kWide) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const Vec<double> a = widen(x + i + j * kWide);
        sum[j] += a * a;
      }
    }
    double rest = 0;
    for (; i < n; ++i) rest += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    return sum_lanes<double>((sum[0] + sum[1]) + (sum[2] + sum[3])) + rest;
  }

  static void rope(const T* x, T* y, int64_t heads, int64_t width, double pos, const double* frequency,
                   double* table) {
    const int64_t half = width / 2;
    double *cosine = table, *sine = table + half;
    for (int64_t i = 0; i < half; i += kLanes<double>) {
      const int64_t n = half - i < kLanes<double> ? half - i : kLanes<double>;
      const SinCos at = sincos(load_part(frequency + i, n) * pos);
      store_part<double>(cosine + i, at.cos, n);
      store_part<double>(sine + i, at.sin, n);
    }
    for (int64_t head = 0; head < heads; ++head, x += width, y += width) {
      for (int64_t i = 0; i < half; i += kLanes<double>) {
        const int64_t n = half - i < kLanes<double> ? half - i : kLanes<double>;
        const Vec<double> a = widen_part(x + i, n), b = widen_part(x + half + i, n);
        const Vec<double> c = load_part(cosine + i, n), s = load_part(sine + i, n);
        narrow_part(y + i, a * c - b * s, n);
        narrow_part(y + half + i, a * s + b * c, n);
      }
    }
  }

  static void dropout(const T* x, T* y, int64_t n, const uint32_t counter[3], uint64_t key,
                      uint64_t threshold, T scale) {
    if (threshold == 0) {  // keeps all; below, `word > last` stands for `word >= threshold`
      map<T>(
          n, y, [scale](V a) { return a * scale; }, x);
      return;
    }
    const auto last = static_cast<uint32_t>(threshold - 1);
    for (int64_t i = 0; i < n; i += 4 * kGroups) {
      uint32_t word[4 * kGroups];
      philox(static_cast<uint32_t>(i / 4), counter, key, word);
      const int64_t count = n - i < 4 * kGroups ? n - i : 4 * kGroups;
      for (int64_t j = 0; j < count; ++j) y[i + j] = word[j] > last ? x[i + j] * scale : T{0};
    }
  }

  static double logsumexp(const T* x, int64_t n) {
    V top = splat(static_cast<T>(-__builtin_inf()));
    int64_t i = 0;
    for (; i + kLanes<T> <= n; i += kLanes<T>) {
      const V a = load(x + i);
      top = a > top ? a : top;
    }
    T m = max_lanes<T>(top);
    for (; i < n; ++i) m = x[i] > m ? x[i] : m;
    V sum{};
    for (i = 0; i + kLanes<T> <= n; i += kLanes<T>) sum += exp<T>(load(x + i) - m);
    T rest = 0;
    if (i < n) {
      const V tail = exp<T>(load_part(x + i, n - i) - m);
      for (int64_t j = 0; j < n - i; ++j) rest += tail[j];
    }
    return static_cast<double>(m) + __builtin_log(static_cast<double>(sum_lanes<T>(sum) + rest));
  }

  static void softmax(const T* x, T lse, T* dx, int64_t n) {
    map<T>(
        n, dx, [lse](V a) { return exp<T>(a - lse); }, x);
  }

 private:
  // y (+)= f(x...)
  template <class F, class... X>
  static TENON_INLINE void put(int64_t n, T* y, bool add, F&& f, const X*... x) {
    if (add) {
      map<T>(
          n, y, [&](V before, auto... v) { return before + f(v...); }, y, x...);
    } else {
      map<T>(n, y, f, x...);
    }
  }

  static void clear(T* x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) x[i] = 0;
  }

  // As many elements as a vector of doubles has.
  typedef float Half __attribute__((vector_size(TENON_VECTOR_BYTES / 2), aligned(4), may_alias));
  static TENON_INLINE Vec<double> widen(const double* x) { return load(x); }
  static TENON_INLINE Vec<double> widen(const float* x) {
    return __builtin_convertvector(*reinterpret_cast<const Half*>(x), Vec<double>);
  }
  static TENON_INLINE void narrow(double* y, Vec<double> v) { store(y, v); }
  static TENON_INLINE void narrow(float* y, Vec<double> v) {
    *reinterpret_cast<Half*>(y) = __builtin_convertvector(v, Half);
  }

  // The first n elements; n == lanes is the fast case.
  static TENON_INLINE Vec<double> widen_part(const T* x, int64_t n) {
    if (n == kLanes<double>) return widen(x);
    Vec<double> v{};
    for (int64_t i = 0; i < n; ++i) v[i] = static_cast<double>(x[i]);
    return v;
  }
  static TENON_INLINE void narrow_part(T* y, Vec<double> v, int64_t n) {
    if (n == kLanes<double>) return narrow(y, v);
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(v[i]);
  }

  static constexpr int kGroups = 16;  // random words are made for 16 counters at a time

  // Philox4x32-10 of counters (first + i, counter...), i < kGroups: word[4 * i + lane].
  static void philox(uint32_t first, const uint32_t counter[3], uint64_t key, uint32_t* word) {
    // Only the low halves of the lanes count; what rounds leave in the high halves is ignored.
    constexpr int kWide = static_cast<int>(kLanes<double>);
    for (int begin = 0; begin < kGroups; begin += kWide) {
      Words a{}, b = Words{} + counter[0], c = Words{} + counter[1], d = Words{} + counter[2];
      for (int i = 0; i < kWide; ++i) a[i] = first + static_cast<uint32_t>(begin + i);
      auto low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
      for (int round = 0; round < 10; ++round, low += 0x9E3779B9u, high += 0xBB67AE85u) {
        const Words p = multiply_low(a, Words{} + 0xD2511F53u), q = multiply_low(c, Words{} + 0xCD9E8D57u);
        a = (q >> 32) ^ b ^ (Words{} + low);
        c = (p >> 32) ^ d ^ (Words{} + high);
        b = q;
        d = p;
      }
      for (int i = 0; i < kWide; ++i) {
        uint32_t* to = word + 4 * (begin + i);
        to[0] = static_cast<uint32_t>(a[i]);
        to[1] = static_cast<uint32_t>(b[i]);
        to[2] = static_cast<uint32_t>(c[i]);
        to[3] = static_cast<uint32_t>(d[i]);
      }
    }
  }
};

}  // namespace
}  // namespace tenon::kernels::cpu::TENON_ISA
