// The arithmetic of LAMB for one contiguous run of elements.
#pragma once

#include <cmath>

#include "tenon_sdk/moments.hpp"

namespace tenon::optimizer {

template <class T>
struct LambConstants : MomentConstants<T> {
  T first_moment;  // 1 / (1 - beta1^t)
  T weight_decay;
  double lr;

  LambConstants(const MomentOptions& o, const tenon_step_scalars& s)
      : MomentConstants<T>(o, s),
        first_moment(static_cast<T>(1.0 / (1.0 - power(o.beta1, s.step)))),
        weight_decay(static_cast<T>(o.weight_decay)),
        lr(s.lr) {}
};

// What a step would make of an element's moments, and the direction in which it would move.
template <class T>
struct LambMove {
  Moments<T> moments;
  T direction;

  [[gnu::always_inline]] LambMove(const LambConstants<T>& c, T param, T grad, T exp_avg, T exp_avg_sq)
      : moments(c, grad, exp_avg, exp_avg_sq),
        direction(moments.first * c.first_moment / moments.root(c) + c.weight_decay * param) {}
};

// Squares of the parameter and of its direction, added up in f64.
template <class T>
struct LambMeasure {
  LambConstants<T> constants;
  const T* param;
  const T* grad;
  const T* exp_avg;
  const T* exp_avg_sq;
  double* sums;  // 2

  [[gnu::always_inline]] inline void apply(uint64_t count) const {
    constexpr uint64_t kLanes = 8;
    const LambConstants<T> c = constants;
    double params[kLanes] = {}, directions[kLanes] = {};
    const auto add = [&](uint64_t i, uint64_t lane) __attribute__((always_inline)) {
      const LambMove<T> move(c, param[i], grad[i], exp_avg[i], exp_avg_sq[i]);
      params[lane] += static_cast<double>(param[i]) * static_cast<double>(param[i]);
      directions[lane] += static_cast<double>(move.direction) * static_cast<double>(move.direction);
    };
    uint64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (uint64_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
    }
    for (; i < count; ++i) add(i, i % kLanes);
    for (uint64_t lane = 0; lane < kLanes; ++lane) {
      sums[0] += params[lane];
      sums[1] += directions[lane];
    }
  }
};

template <class T>
struct LambRule {
  LambConstants<T> constants;
  T rate;  // the learning rate times the parameter's trust ratio
  T* param;
  const T* grad;
  T* exp_avg;
  T* exp_avg_sq;

  [[gnu::always_inline]] inline void apply(uint64_t count) const {
    const LambConstants<T> c = constants;
    const T scale = rate;
    T* __restrict p = param;
    const T* __restrict dp = grad;
    T* __restrict m = exp_avg;
    T* __restrict v = exp_avg_sq;
    for (uint64_t i = 0; i < count; ++i) {
      const LambMove<T> move(c, p[i], dp[i], m[i], v[i]);
      m[i] = move.moments.first;
      v[i] = move.moments.second;
      p[i] = p[i] - scale * move.direction;
    }
  }
};

// |param| / |direction|, of the sums of their squares; 1 where one of them is 0.
inline double trust_ratio(const double* stats) {
  return stats[0] > 0.0 && stats[1] > 0.0 ? std::sqrt(stats[0]) / std::sqrt(stats[1]) : 1.0;
}

}  // namespace tenon::optimizer
