// attention, its gradient, and rotary positions.
#include <algorithm>
#include <cmath>
#include <limits>

#include "op.h"

namespace tenon::kernels::reference {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// Index arithmetic of the operands: q[b s g r d], k[b t g d], lse[b g r s].
struct Layout {
  int64_t batch, queries, keys, groups, reps, width;

  explicit Layout(const Call& call)
      : batch(call.size("b")),
        queries(call.size("s")),
        keys(call.size("t")),
        groups(call.size("g")),
        reps(call.size("r")),
        width(call.size("d")) {}
  int64_t q(int64_t b, int64_t s, int64_t g, int64_t r) const {
    return (((b * queries + s) * groups + g) * reps + r) * width;
  }
  int64_t k(int64_t b, int64_t t, int64_t g) const { return ((b * keys + t) * groups + g) * width; }
  int64_t lse(int64_t b, int64_t s, int64_t g, int64_t r) const {
    return ((b * groups + g) * reps + r) * queries + s;
  }
  // body(b, s, g, r) for every query head of every token.
  template <class Body>
  void each(Body&& body) const {
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t s = 0; s < queries; ++s) {
        for (int64_t g = 0; g < groups; ++g) {
          for (int64_t r = 0; r < reps; ++r) body(b, s, g, r);
        }
      }
    }
  }
};

template <class T>
double dot(const T* x, const T* y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * y[i];
  return sum;
}

// p[t] = exp(score[t] - max) over the keys that a query sees; returns log(sum of exp(score)) and divides p
// by its sum. A query that sees no key gets p = 0 and -inf.
double softmax_row(double* p, int64_t keys) {
  const double top = keys > 0 ? *std::max_element(p, p + keys) : kNothing;
  if (top == kNothing) {
    std::fill_n(p, keys, 0.0);
    return kNothing;
  }
  double sum = 0;
  for (int64_t t = 0; t < keys; ++t) sum += p[t] = std::exp(p[t] - top);
  for (int64_t t = 0; t < keys; ++t) p[t] /= sum;
  return top + std::log(sum);
}

// A query that sees no key gets o = 0 and lse = -inf.
template <class T>
void attention(const Call& call) {
  const Layout at(call);
  const T *q = call.in<T>(0), *k = call.in<T>(1), *v = call.in<T>(2);
  const auto *qpos = call.in<int32_t>(3), *kpos = call.in<int32_t>(4);
  T *o = call.out<T>(0), *lse = call.out<T>(1);
  const double scale = call.number("scale");
  double* p = call.workspace<double>();  // one row of probabilities
  at.each([&](int64_t b, int64_t s, int64_t g, int64_t r) {
    const int64_t i = at.q(b, s, g, r);
    for (int64_t t = 0; t < at.keys; ++t) {
      const bool sees = kpos[b * at.keys + t] <= qpos[b * at.queries + s];
      p[t] = sees ? scale * dot(q + i, k + at.k(b, t, g), at.width) : kNothing;
    }
    lse[at.lse(b, s, g, r)] = static_cast<T>(softmax_row(p, at.keys));
    for (int64_t d = 0; d < at.width; ++d) {
      double out = 0;
      for (int64_t t = 0; t < at.keys; ++t) out += p[t] * v[at.k(b, t, g) + d];
      o[i + d] = static_cast<T>(out);
    }
  });
}

// p = exp(scale * q.k - lse), ds = p * (do.v - do.o):
// dq = scale * sum_t ds k, dk = scale * sum_s,r ds q, dv = sum_s,r p do
template <class T>
void attention_dgrad(const Call& call) {
  const Layout at(call);
  const T *dout = call.in<T>(0), *q = call.in<T>(1), *k = call.in<T>(2), *v = call.in<T>(3);
  const T *o = call.in<T>(4), *lse = call.in<T>(5);
  const auto *qpos = call.in<int32_t>(6), *kpos = call.in<int32_t>(7);
  T *dq_out = call.out<T>(0), *dk_out = call.out<T>(1), *dv_out = call.out<T>(2);
  const double scale = call.number("scale");
  const int64_t key_elements = at.batch * at.keys * at.groups * at.width;
  double *dk = call.workspace<double>(), *dv = dk + key_elements, *dq = dv + key_elements;
  std::fill_n(dk, 2 * key_elements, 0.0);
  at.each([&](int64_t b, int64_t s, int64_t g, int64_t r) {
    const int64_t i = at.q(b, s, g, r);
    const double delta = dot(dout + i, o + i, at.width);
    std::fill_n(dq, at.width, 0.0);
    for (int64_t t = 0; t < at.keys; ++t) {
      if (kpos[b * at.keys + t] > qpos[b * at.queries + s]) continue;
      const int64_t j = at.k(b, t, g);
      const double p = std::exp(scale * dot(q + i, k + j, at.width) - lse[at.lse(b, s, g, r)]);
      const double ds = p * (dot(dout + i, v + j, at.width) - delta);
      for (int64_t d = 0; d < at.width; ++d) {
        dq[d] += scale * ds * k[j + d];
        dk[j + d] += scale * ds * q[i + d];
        dv[j + d] += p * dout[i + d];
      }
    }
    for (int64_t d = 0; d < at.width; ++d) dq_out[i + d] = static_cast<T>(dq[d]);
  });
  for (int64_t i = 0; i < key_elements; ++i) {
    dk_out[i] = static_cast<T>(dk[i]);
    dv_out[i] = static_cast<T>(dv[i]);
  }
}

// (x[i], x[i + d/2]) turned by pos * theta^(-2i/d), backwards if inverse.
template <class T>
void rope(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), heads = call.size("e.."), width = call.size("d");
  const T* x = call.in<T>(0);
  const auto* pos = call.in<int32_t>(1);
  T* y = call.out<T>(0);
  const double theta = call.number("theta"), sign = call.integer("inverse") != 0 ? -1 : 1;
  const int64_t half = width / 2;
  for (int64_t row = 0; row < tokens * heads; ++row, x += width, y += width) {
    const int32_t position = pos[row / heads];
    for (int64_t i = 0; i < half; ++i) {
      const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(width));
      const double angle = sign * position * frequency;
      const double a = x[i], b = x[i + half];
      y[i] = static_cast<T>(a * std::cos(angle) - b * std::sin(angle));
      y[i + half] = static_cast<T>(a * std::sin(angle) + b * std::cos(angle));
    }
  }
}

constexpr Entry kOps[] = {
    {"attention", attention<float>, attention<double>, nullptr, nullptr,
     [](const Problem& p) { return 8 * p.size("t"); }},
    {"attention_dgrad", attention_dgrad<float>, attention_dgrad<double>, nullptr, nullptr,
     [](const Problem& p) { return 8 * (2 * p.size("b") * p.size("t") * p.size("g") + 1) * p.size("d"); }},
    {"rope", rope<float>, rope<double>},
};

}  // namespace

std::span<const Entry> attention_ops() { return kOps; }

}  // namespace tenon::kernels::reference
