// grouped_linear and its gradients: a linear map of its own for every expert. Row r of expert e is slot c of
// routing group g; O = o.., K = k..
#include "op.h"

namespace tenon::kernels::reference {
namespace {

struct Sizes {
  int64_t groups, experts, slots, outs, ins;

  explicit Sizes(const Call& call)
      : groups(call.size("b") * call.size("n")),
        experts(call.size("e")),
        slots(call.size("c")),
        outs(call.size("o..")),
        ins(call.size("k..")) {}
  // body(row, expert) for every row of [b n e c].
  template <class Body>
  void rows(Body&& body) const {
    for (int64_t row = 0; row < groups * experts * slots; ++row) body(row, row / slots % experts);
  }
};

// y[r, o] = sum_k x[r, k] w[e, o, k]
template <class T>
void grouped_linear(const Call& call) {
  const Sizes n(call);
  const T *x = call.in<T>(0), *w = call.in<T>(1);
  T* y = call.out<T>(0);
  n.rows([&](int64_t row, int64_t e) {
    for (int64_t o = 0; o < n.outs; ++o) {
      double sum = 0;
      for (int64_t k = 0; k < n.ins; ++k)
        sum += static_cast<double>(x[row * n.ins + k]) * w[(e * n.outs + o) * n.ins + k];
      y[row * n.outs + o] = static_cast<T>(sum);
    }
  });
}

// dx[r, k] = sum_o dy[r, o] w[e, o, k]
template <class T>
void grouped_linear_dgrad(const Call& call) {
  const Sizes n(call);
  const T *dy = call.in<T>(0), *w = call.in<T>(1);
  T* dx = call.out<T>(0);
  n.rows([&](int64_t row, int64_t e) {
    for (int64_t k = 0; k < n.ins; ++k) {
      double sum = 0;
      for (int64_t o = 0; o < n.outs; ++o)
        sum += static_cast<double>(dy[row * n.outs + o]) * w[(e * n.outs + o) * n.ins + k];
      dx[row * n.ins + k] = static_cast<T>(sum);
    }
  });
}

// dw[e, o, k] = sum over the rows of e of dy[r, o] x[r, k]
template <class T>
void grouped_linear_wgrad(const Call& call) {
  const Sizes n(call);
  const T *dy = call.in<T>(0), *x = call.in<T>(1);
  T* dw = call.out<T>(0);
  for (int64_t i = 0; i < n.experts * n.outs * n.ins; ++i) {
    const int64_t k = i % n.ins, o = i / n.ins % n.outs, e = i / n.ins / n.outs;
    double sum = 0;
    for (int64_t g = 0; g < n.groups; ++g) {
      for (int64_t row = (g * n.experts + e) * n.slots; row < (g * n.experts + e + 1) * n.slots; ++row)
        sum += static_cast<double>(dy[row * n.outs + o]) * x[row * n.ins + k];
    }
    call.put(dw[i], sum);
  }
}

constexpr Entry kOps[] = {
    {"grouped_linear", grouped_linear<float>, grouped_linear<double>},
    {"grouped_linear_dgrad", grouped_linear_dgrad<float>, grouped_linear_dgrad<double>},
    {"grouped_linear_wgrad", grouped_linear_wgrad<float>, grouped_linear_wgrad<double>},
};

}  // namespace

std::span<const Entry> grouped_linear_ops() { return kOps; }

}  // namespace tenon::kernels::reference
