// gelu, swiglu, their gradients, bias_gelu, and add.
#include <cmath>
#include <numbers>
#include <type_traits>

#include "op.h"

namespace tenon::kernels::reference {
namespace {

const double kGeluScale = std::sqrt(2 / std::numbers::pi);
constexpr double kGeluCubic = 0.044715;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
double gelu_of(double x) { return 0.5 * x * (1 + std::tanh(kGeluScale * (x + kGeluCubic * x * x * x))); }

template <class T>
void gelu(const Call& call) {
  const int64_t n = call.problem.inputs()[0].elements();
  const T* x = call.in<T>(0);
  T* y = call.out<T>(0);
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(gelu_of(x[i]));
}

template <class T>
void bias_gelu(const Call& call) {
  const int64_t n = call.problem.inputs()[0].elements(), outs = call.size("o..");
  const T *x = call.in<T>(0), *bias = call.in<T>(1);
  T *z = call.out<T>(0), *y = call.out<T>(1);
  for (int64_t i = 0; i < n; ++i) {
    z[i] = static_cast<T>(static_cast<double>(x[i]) + bias[i % outs]);
    y[i] = static_cast<T>(gelu_of(z[i]));
  }
}

template <class T>
void gelu_dgrad(const Call& call) {
  const int64_t n = call.problem.inputs()[0].elements();
  const T *dy = call.in<T>(0), *in = call.in<T>(1);
  T* dx = call.out<T>(0);
  for (int64_t i = 0; i < n; ++i) {
    const double x = in[i];
    const double t = std::tanh(kGeluScale * (x + kGeluCubic * x * x * x));
    const double inner = kGeluScale * (1 + 3 * kGeluCubic * x * x);
    dx[i] = static_cast<T>(dy[i] * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner));
  }
}

template <class T>
void swiglu(const Call& call) {
  const int64_t n = call.problem.inputs()[0].elements();
  const T *gate = call.in<T>(0), *up = call.in<T>(1);
  T* y = call.out<T>(0);
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(gate[i] * sigmoid(gate[i]) * up[i]);
}

template <class T>
void swiglu_dgrad(const Call& call) {
  const int64_t n = call.problem.inputs()[0].elements();
  const T *dy = call.in<T>(0), *gate = call.in<T>(1), *up = call.in<T>(2);
  T *dgate = call.out<T>(0), *dup = call.out<T>(1);
  for (int64_t i = 0; i < n; ++i) {
    const double g = gate[i], s = sigmoid(g);
    dgate[i] = static_cast<T>(static_cast<double>(dy[i]) * up[i] * s * (1 + g * (1 - s)));
    dup[i] = static_cast<T>(dy[i] * g * s);
  }
}

template <class T>
void softcap(const Call& call) {
  const int64_t n = call.problem.inputs()[0].elements();
  const double cap = call.number("cap");
  const T* x = call.in<T>(0);
  T* y = call.out<T>(0);
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(cap * std::tanh(x[i] / cap));
}

template <class T>
void softcap_dgrad(const Call& call) {
  const int64_t n = call.problem.inputs()[0].elements();
  const double cap = call.number("cap");
  const T *dy = call.in<T>(0), *x = call.in<T>(1);
  T* dx = call.out<T>(0);
  for (int64_t i = 0; i < n; ++i) {
    const double t = std::tanh(x[i] / cap);
    dx[i] = static_cast<T>(dy[i] * (1 - t * t));
  }
}

// Integers wrap around.
template <class T>
void add(const Call& call) {
  const int64_t n = call.problem.inputs()[0].elements();
  const T *x = call.in<T>(0), *y = call.in<T>(1);
  T* z = call.out<T>(0);
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      z[i] = static_cast<T>(static_cast<U>(x[i]) + static_cast<U>(y[i]));
    } else {
      z[i] = static_cast<T>(static_cast<double>(x[i]) + y[i]);
    }
  }
}

constexpr Entry kOps[] = {
    {"gelu", gelu<float>, gelu<double>},
    {"bias_gelu", bias_gelu<float>, bias_gelu<double>},
    {"gelu_dgrad", gelu_dgrad<float>, gelu_dgrad<double>},
    {"swiglu", swiglu<float>, swiglu<double>},
    {"swiglu_dgrad", swiglu_dgrad<float>, swiglu_dgrad<double>},
    {"softcap", softcap<float>, softcap<double>},
    {"softcap_dgrad", softcap_dgrad<float>, softcap_dgrad<double>},
    {"add", add<float>, add<double>, add<int64_t>, add<int32_t>},
};

}  // namespace

std::span<const Entry> elementwise_ops() { return kOps; }

}  // namespace tenon::kernels::reference
