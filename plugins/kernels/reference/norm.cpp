// layernorm, rmsnorm and their gradients. Rows are tokens, xhat = (x - mean) * rstd.
#include <cmath>

#include "op.h"

namespace tenon::kernels::reference {
namespace {

// x + y of the fused kinds.
template <class T>
const T* sum(const Call& call) {
  const int64_t n = call.problem.inputs()[0].elements();
  const T *x = call.in<T>(0), *y = call.in<T>(1);
  T* z = call.out<T>(0);
  for (int64_t i = 0; i < n; ++i) z[i] = static_cast<T>(static_cast<double>(x[i]) + y[i]);
  return z;
}

// The inputs behind x start at `in`, the outputs at `out`.
template <class T>
void layernorm_of(const Call& call, const T* x, size_t in, size_t out) {
  const int64_t rows = call.size("b") * call.size("s"), width = call.size("h");
  const T *w = call.in<T>(in), *b = call.in<T>(in + 1);
  T *y = call.out<T>(out), *mean_out = call.out<T>(out + 1), *rstd_out = call.out<T>(out + 2);
  for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < width; ++i) mean += x[i];
    mean /= static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i) variance += (x[i] - mean) * (x[i] - mean);
    variance /= static_cast<double>(width);
    const double rstd = 1 / std::sqrt(variance + call.number("eps"));
    for (int64_t i = 0; i < width; ++i) y[i] = static_cast<T>((x[i] - mean) * rstd * w[i] + b[i]);
    mean_out[row] = static_cast<T>(mean);
    rstd_out[row] = static_cast<T>(rstd);
  }
}

template <class T>
void layernorm(const Call& call) {
  layernorm_of(call, call.in<T>(0), 1, 0);
}

template <class T>
void add_layernorm(const Call& call) {
  layernorm_of(call, sum<T>(call), 2, 1);
}

// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) with g = dy * w
template <class T>
void layernorm_dgrad(const Call& call) {
  const int64_t rows = call.size("b") * call.size("s"), width = call.size("h");
  const T *dy = call.in<T>(0), *x = call.in<T>(1), *w = call.in<T>(2);
  const T *mean = call.in<T>(3), *rstd = call.in<T>(4);
  T* dx = call.out<T>(0);
  for (int64_t row = 0; row < rows; ++row, x += width, dy += width, dx += width) {
    const double m = mean[row], r = rstd[row];
    double sum_g = 0, sum_gx = 0;
    for (int64_t i = 0; i < width; ++i) {
      const double g = static_cast<double>(dy[i]) * w[i];
      sum_g += g;
      sum_gx += g * (x[i] - m) * r;
    }
    sum_g /= static_cast<double>(width);
    sum_gx /= static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i) {
      const double g = static_cast<double>(dy[i]) * w[i];
      call.put(dx[i], r * (g - sum_g - (x[i] - m) * r * sum_gx));
    }
  }
}

template <class T>
void layernorm_wgrad(const Call& call) {
  const int64_t rows = call.size("b") * call.size("s"), width = call.size("h");
  const T *dy = call.in<T>(0), *x = call.in<T>(1), *mean = call.in<T>(2), *rstd = call.in<T>(3);
  T *dw = call.out<T>(0), *db = call.out<T>(1);
  for (int64_t i = 0; i < width; ++i) {
    double sum_w = 0, sum_b = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const double g = dy[row * width + i];
      sum_w += g * (x[row * width + i] - static_cast<double>(mean[row])) * rstd[row];
      sum_b += g;
    }
    call.put(dw[i], sum_w);
    call.put(db[i], sum_b);
  }
}

template <class T>
void rmsnorm_of(const Call& call, const T* x, size_t in, size_t out) {
  const int64_t rows = call.size("b") * call.size("s"), width = call.size("h");
  const T* w = call.in<T>(in);
  T *y = call.out<T>(out), *rstd_out = call.out<T>(out + 1);
  for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += static_cast<double>(x[i]) * x[i];
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(width) + call.number("eps"));
    for (int64_t i = 0; i < width; ++i) y[i] = static_cast<T>(x[i] * rstd * w[i]);
    rstd_out[row] = static_cast<T>(rstd);
  }
}

template <class T>
void rmsnorm(const Call& call) {
  rmsnorm_of(call, call.in<T>(0), 1, 0);
}

template <class T>
void add_rmsnorm(const Call& call) {
  rmsnorm_of(call, sum<T>(call), 2, 1);
}

// dx = rstd * (g - xhat * mean(g * xhat)) with g = dy * w, xhat = x * rstd
template <class T>
void rmsnorm_dgrad(const Call& call) {
  const int64_t rows = call.size("b") * call.size("s"), width = call.size("h");
  const T *dy = call.in<T>(0), *x = call.in<T>(1), *w = call.in<T>(2), *rstd = call.in<T>(3);
  T* dx = call.out<T>(0);
  for (int64_t row = 0; row < rows; ++row, x += width, dy += width, dx += width) {
    const double r = rstd[row];
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += static_cast<double>(dy[i]) * w[i] * x[i] * r;
    sum /= static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i) {
      call.put(dx[i], r * (static_cast<double>(dy[i]) * w[i] - x[i] * r * sum));
    }
  }
}

template <class T>
void rmsnorm_wgrad(const Call& call) {
  const int64_t rows = call.size("b") * call.size("s"), width = call.size("h");
  const T *dy = call.in<T>(0), *x = call.in<T>(1), *rstd = call.in<T>(2);
  T* dw = call.out<T>(0);
  for (int64_t i = 0; i < width; ++i) {
    double sum = 0;
    for (int64_t row = 0; row < rows; ++row) {
      sum += static_cast<double>(dy[row * width + i]) * x[row * width + i] * rstd[row];
    }
    call.put(dw[i], sum);
  }
}

constexpr Entry kOps[] = {
    {"layernorm", layernorm<float>, layernorm<double>},
    {"add_layernorm", add_layernorm<float>, add_layernorm<double>},
    {"layernorm_dgrad", layernorm_dgrad<float>, layernorm_dgrad<double>},
    {"layernorm_wgrad", layernorm_wgrad<float>, layernorm_wgrad<double>},
    {"rmsnorm", rmsnorm<float>, rmsnorm<double>},
    {"add_rmsnorm", add_rmsnorm<float>, add_rmsnorm<double>},
    {"rmsnorm_dgrad", rmsnorm_dgrad<float>, rmsnorm_dgrad<double>},
    {"rmsnorm_wgrad", rmsnorm_wgrad<float>, rmsnorm_wgrad<double>},
};

}  // namespace

std::span<const Entry> norm_ops() { return kOps; }

}  // namespace tenon::kernels::reference
