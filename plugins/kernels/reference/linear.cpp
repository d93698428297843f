// linear, bias_add and their gradients. M tokens, N = o.., K = k..
#include "op.h"

namespace tenon::kernels::reference {
namespace {

// y[M,N] = x[M,K] w[N,K]^T
template <class T>
void linear(const Call& call) {
  const int64_t rows = call.size("b") * call.size("s"), outs = call.size("o.."), ins = call.size("k..");
  const T *x = call.in<T>(0), *w = call.in<T>(1);
  T* y = call.out<T>(0);
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < outs; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < ins; ++k) sum += static_cast<double>(x[m * ins + k]) * w[n * ins + k];
      y[m * outs + n] = static_cast<T>(sum);
    }
  }
}

// dx[M,K] (+)= dy[M,N] w[N,K]
template <class T>
void linear_dgrad(const Call& call) {
  const int64_t rows = call.size("b") * call.size("s"), outs = call.size("o.."), ins = call.size("k..");
  const T *dy = call.in<T>(0), *w = call.in<T>(1);
  T* dx = call.out<T>(0);
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t k = 0; k < ins; ++k) {
      double sum = 0;
      for (int64_t n = 0; n < outs; ++n) sum += static_cast<double>(dy[m * outs + n]) * w[n * ins + k];
      call.put(dx[m * ins + k], sum);
    }
  }
}

// dw[N,K] (+)= dy[M,N]^T x[M,K]
template <class T>
void linear_wgrad(const Call& call) {
  const int64_t rows = call.size("b") * call.size("s"), outs = call.size("o.."), ins = call.size("k..");
  const T *dy = call.in<T>(0), *x = call.in<T>(1);
  T* dw = call.out<T>(0);
  for (int64_t n = 0; n < outs; ++n) {
    for (int64_t k = 0; k < ins; ++k) {
      double sum = 0;
      for (int64_t m = 0; m < rows; ++m) sum += static_cast<double>(dy[m * outs + n]) * x[m * ins + k];
      call.put(dw[n * ins + k], sum);
    }
  }
}

template <class T>
void bias_add(const Call& call) {
  const int64_t rows = call.size("b") * call.size("s"), outs = call.size("o..");
  const T *x = call.in<T>(0), *bias = call.in<T>(1);
  T* y = call.out<T>(0);
  for (int64_t i = 0; i < rows * outs; ++i) y[i] = static_cast<T>(static_cast<double>(x[i]) + bias[i % outs]);
}

template <class T>
void bias_wgrad(const Call& call) {
  const int64_t rows = call.size("b") * call.size("s"), outs = call.size("o..");
  const T* dy = call.in<T>(0);
  T* db = call.out<T>(0);
  for (int64_t n = 0; n < outs; ++n) {
    double sum = 0;
    for (int64_t m = 0; m < rows; ++m) sum += dy[m * outs + n];
    call.put(db[n], sum);
  }
}

constexpr Entry kOps[] = {
    {"linear", linear<float>, linear<double>},
    {"linear_dgrad", linear_dgrad<float>, linear_dgrad<double>},
    {"linear_wgrad", linear_wgrad<float>, linear_wgrad<double>},
    {"bias_add", bias_add<float>, bias_add<double>},
    {"bias_wgrad", bias_wgrad<float>, bias_wgrad<double>},
};

}  // namespace

std::span<const Entry> linear_ops() { return kOps; }

}  // namespace tenon::kernels::reference
