// What Adam and its kin have in common: decayed means of the gradient and of its square. Their options, their
// slots of state, and what a step does to one element of them. For multi_tensor.hpp.
#pragma once

#include <cmath>
#include <string>

#include "tenon_sdk/multi_tensor.hpp"

namespace tenon::optimizer {

inline constexpr tenon_option_decl kBeta1 =
    sdk::float_option("beta1", "decay of the mean of gradients, below 1", "0.9", 0, 1);
inline constexpr tenon_option_decl kBeta2 =
    sdk::float_option("beta2", "decay of the mean of squared gradients, below 1", "0.999", 0, 1);

inline constexpr tenon_slot_decl kExpAvg = slot("exp_avg"), kExpAvgSq = slot("exp_avg_sq");
inline constexpr const tenon_slot_decl* kMomentSlots[] = {&kExpAvg, &kExpAvgSq};

// Of the options beta1, beta2, eps and weight_decay, which the optimizer declares.
struct MomentOptions {
  double beta1, beta2, eps, weight_decay;

  static MomentOptions parse(const sdk::Options& options) {
    return {decay_rate(options, "beta1"), decay_rate(options, "beta2"), options.number("eps"),
            options.number("weight_decay")};
  }

 private:
  static double decay_rate(const sdk::Options& options, const char* key) {
    const double beta = options.number(key);
    if (beta < 1.0) return beta;
    throw sdk::Failure(TENON_E_ARGUMENT, std::string(key) + " = 1: must be below 1");
  }
};

// The constants of one step. All are computed in double and rounded once.
template <class T>
struct MomentConstants {
  T grad_scale;
  T beta1;
  T one_minus_beta1;
  T beta2;
  T one_minus_beta2;
  T eps;
  T second_moment;  // 1 / sqrt(1 - beta2^t)

  MomentConstants(const MomentOptions& o, const tenon_step_scalars& s)
      : grad_scale(static_cast<T>(s.grad_scale)),
        beta1(static_cast<T>(o.beta1)),
        one_minus_beta1(static_cast<T>(1.0 - o.beta1)),
        beta2(static_cast<T>(o.beta2)),
        one_minus_beta2(static_cast<T>(1.0 - o.beta2)),
        eps(static_cast<T>(o.eps)),
        second_moment(static_cast<T>(1.0 / std::sqrt(1.0 - power(o.beta2, s.step)))) {}
};

// The moments of one element after a step.
template <class T>
struct Moments {
  T first, second;

  [[gnu::always_inline]] Moments(const MomentConstants<T>& c, T grad, T exp_avg, T exp_avg_sq) {
    const T g = grad * c.grad_scale;
    first = c.beta1 * exp_avg + c.one_minus_beta1 * g;
    second = c.beta2 * exp_avg_sq + c.one_minus_beta2 * (g * g);
  }
  // What the first is divided by.
  [[gnu::always_inline]] T root(const MomentConstants<T>& c) const {
    return std::sqrt(second) * c.second_moment + c.eps;
  }
};

}  // namespace tenon::optimizer
