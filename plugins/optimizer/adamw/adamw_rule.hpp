// The arithmetic of AdamW for one contiguous run of elements.
#pragma once

#include <cmath>

#include "tenon_sdk/multi_tensor.hpp"

namespace tenon::optimizer {

struct AdamWOptions {
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
};

// The constants of one step. All are computed in double and rounded once.
template <class T>
struct AdamWConstants {
  T grad_scale;
  T keep;  // 1 - lr * weight_decay
  T beta1;
  T one_minus_beta1;
  T beta2;
  T one_minus_beta2;
  T eps;
  T step_size;      // lr / (1 - beta1^t)
  T second_moment;  // 1 / sqrt(1 - beta2^t)

  AdamWConstants(const AdamWOptions& o, const tenon_step_scalars& s)
      : grad_scale(static_cast<T>(s.grad_scale)),
        keep(static_cast<T>(1.0 - s.lr * o.weight_decay)),
        beta1(static_cast<T>(o.beta1)),
        one_minus_beta1(static_cast<T>(1.0 - o.beta1)),
        beta2(static_cast<T>(o.beta2)),
        one_minus_beta2(static_cast<T>(1.0 - o.beta2)),
        eps(static_cast<T>(o.eps)),
        step_size(static_cast<T>(s.lr / (1.0 - power(o.beta1, s.step)))),
        second_moment(static_cast<T>(1.0 / std::sqrt(1.0 - power(o.beta2, s.step)))) {}
};

template <class T>
struct AdamWRule {
  AdamWConstants<T> constants;
  T* param;
  const T* grad;
  T* exp_avg;
  T* exp_avg_sq;

  [[gnu::always_inline]] inline void apply(uint64_t count) const {
    const AdamWConstants<T> c = constants;
    T* __restrict p = param;
    const T* __restrict dp = grad;
    T* __restrict m = exp_avg;
    T* __restrict v = exp_avg_sq;
    for (uint64_t i = 0; i < count; ++i) {
      const T g = dp[i] * c.grad_scale;
      const T first = c.beta1 * m[i] + c.one_minus_beta1 * g;
      const T second = c.beta2 * v[i] + c.one_minus_beta2 * (g * g);
      m[i] = first;
      v[i] = second;
      p[i] = p[i] * c.keep - c.step_size * (first / (std::sqrt(second) * c.second_moment + c.eps));
    }
  }
};

}  // namespace tenon::optimizer
