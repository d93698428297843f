// The arithmetic of SGD for one contiguous run of elements.
#pragma once

#include "tenon_sdk/multi_tensor.hpp"

namespace tenon::optimizer {

struct SgdOptions {
  double momentum;
  double weight_decay;
  bool nesterov;
};

// The constants of one step, rounded once.
template <class T>
struct SgdConstants {
  T grad_scale;
  T weight_decay;
  T momentum;
  T lr;

  SgdConstants(const SgdOptions& o, const tenon_step_scalars& s)
      : grad_scale(static_cast<T>(s.grad_scale)),
        weight_decay(static_cast<T>(o.weight_decay)),
        momentum(static_cast<T>(o.momentum)),
        lr(static_cast<T>(s.lr)) {}
};

enum class Momentum { kNone, kPlain, kNesterov };

template <class T, Momentum kMomentum>
struct SgdRule {
  SgdConstants<T> constants;
  T* param;
  const T* grad;
  T* momentum;  // not read where kMomentum is kNone

  [[gnu::always_inline]] inline void apply(uint64_t count) const {
    const SgdConstants<T> c = constants;
    T* __restrict p = param;
    const T* __restrict dp = grad;
    T* __restrict buffer = momentum;
    for (uint64_t i = 0; i < count; ++i) {
      T g = dp[i] * c.grad_scale + c.weight_decay * p[i];
      if constexpr (kMomentum != Momentum::kNone) {
        const T b = c.momentum * buffer[i] + g;
        buffer[i] = b;
        g = kMomentum == Momentum::kNesterov ? g + c.momentum * b : b;
      }
      p[i] = p[i] - c.lr * g;
    }
  }
};

}  // namespace tenon::optimizer
