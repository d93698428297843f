// The arithmetic of AdamW for one contiguous run of elements.
#pragma once

#include "tenon_sdk/moments.hpp"

namespace tenon::optimizer {

template <class T>
struct AdamWConstants : MomentConstants<T> {
  T keep;       // 1 - lr * weight_decay
  T step_size;  // lr / (1 - beta1^t)

  AdamWConstants(const MomentOptions& o, const tenon_step_scalars& s)
      : MomentConstants<T>(o, s),
        keep(static_cast<T>(1.0 - s.lr * o.weight_decay)),
        step_size(static_cast<T>(s.lr / (1.0 - power(o.beta1, s.step)))) {}
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
      const Moments<T> now(c, dp[i], m[i], v[i]);
      m[i] = now.first;
      v[i] = now.second;
      p[i] = p[i] * c.keep - c.step_size * (now.first / now.root(c));
    }
  }
};

}  // namespace tenon::optimizer
