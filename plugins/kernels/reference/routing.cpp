// Mixture of experts: which tokens go to which expert, and the moves there and back. A routing group is
// `group` consecutive tokens of a sequence; each has `c` slots at every expert.
#include <algorithm>
#include <cmath>

#include "op.h"

namespace tenon::kernels::reference {
namespace {

// p = softmax of one token's logits.
void softmax(const auto* logits, double* p, int64_t n) {
  const double top = *std::max_element(logits, logits + n);
  double sum = 0;
  for (int64_t e = 0; e < n; ++e) sum += p[e] = std::exp(logits[e] - top);
  for (int64_t e = 0; e < n; ++e) p[e] /= sum;
}

// The k largest, the largest first, the lower index first among equals.
void choose(const auto* logits, int64_t experts, int32_t* expert, int64_t k) {
  for (int64_t j = 0; j < k; ++j) {
    expert[j] = -1;
    for (int32_t e = 0; e < experts; ++e) {
      if (std::find(expert, expert + j, e) != expert + j) continue;
      if (expert[j] < 0 || logits[e] > logits[expert[j]]) expert[j] = e;
    }
  }
}

// f_e: the share of a group's choices that fell on expert e, whether they found a slot or not.
void shares(const int32_t* expert, int64_t choices, double* f, int64_t experts) {
  std::fill_n(f, experts, 0.0);
  for (int64_t i = 0; i < choices; ++i) ++f[expert[i]];
  for (int64_t e = 0; e < experts; ++e) f[e] /= static_cast<double>(choices);
}

// All first choices of a group come before its second choices; a token before those behind it.
void give_slots(const Call& call, const int32_t* expert, int32_t* slot) {
  const int64_t tokens = call.integer("group"), k = call.size("k");
  double* taken = call.workspace<double>();
  std::fill_n(taken, call.size("e"), 0.0);
  for (int64_t j = 0; j < k; ++j) {
    for (int64_t t = 0; t < tokens; ++t) {
      double& next = taken[expert[t * k + j]];
      slot[t * k + j] =
          next < static_cast<double>(call.integer("capacity")) ? static_cast<int32_t>(next++) : -1;
    }
  }
}

// Whether a token is of a sample that exists; those of others are no part of aux.
bool exists(const Call& call, size_t samples, int64_t token) {
  return call.in<int64_t>(samples)[token / call.size("s")] >= 0;
}

// aux = coefficient * sum over groups of samples that exist of
//       tokens * experts * sum_e f_e * (mean over the group's tokens of p_e)
template <class T>
void route_topk(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), experts = call.size("e"), k = call.size("k");
  const int64_t group = call.integer("group");
  const bool renormalise = call.integer("renormalise") != 0;
  double *p = call.workspace<double>(), *mean = p + experts, *f = mean + experts;
  double aux = 0;
  for (int64_t first = 0; first < tokens; first += group) {
    int32_t* expert = call.out<int32_t>(1) + first * k;
    std::fill_n(mean, experts, 0.0);
    for (int64_t t = 0; t < group; ++t) {
      const T* logits = call.in<T>(0) + (first + t) * experts;
      T* gate = call.out<T>(0) + (first + t) * k;
      softmax(logits, p, experts);
      choose(logits, experts, expert + t * k, k);
      double sum = 0;
      for (int64_t j = 0; j < k; ++j) sum += p[expert[t * k + j]];
      for (int64_t j = 0; j < k; ++j)
        gate[j] = static_cast<T>(p[expert[t * k + j]] / (renormalise ? sum : 1));
      for (int64_t e = 0; e < experts; ++e) mean[e] += p[e] / static_cast<double>(group);
    }
    give_slots(call, expert, call.out<int32_t>(2) + first * k);
    if (!exists(call, 1, first)) continue;
    shares(expert, group * k, f, experts);
    double balance = 0;
    for (int64_t e = 0; e < experts; ++e) balance += f[e] * mean[e];
    aux += static_cast<double>(group * experts) * balance;
  }
  *call.out<double>(3) = call.number("aux") * aux;
}

// dp is that of the gates plus, in a sample that exists, coefficient * experts * f_e; dlogits = p * (dp -
// sum_e p dp).
template <class T>
void route_topk_dgrad(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), experts = call.size("e"), k = call.size("k");
  const int64_t group = call.integer("group");
  const bool renormalise = call.integer("renormalise") != 0;
  double *p = call.workspace<double>(), *dp = p + experts;
  check_indices(call.problem.kind(), "expert", call.in<int32_t>(3), tokens * k, experts, Padding::refused);
  for (int64_t t = 0; t < tokens; ++t) {
    const T* dgate = call.in<T>(0) + t * k;
    const int32_t* expert = call.in<int32_t>(3) + t * k;
    softmax(call.in<T>(1) + t * experts, p, experts);
    shares(call.in<int32_t>(3) + t / group * group * k, group * k, dp, experts);
    const double aux = exists(call, 2, t) ? call.number("aux") : 0;
    for (int64_t e = 0; e < experts; ++e) dp[e] *= aux * static_cast<double>(experts);
    double sum = 0, weighted = 0;
    for (int64_t j = 0; j < k; ++j) {
      sum += p[expert[j]];
      weighted += dgate[j] * p[expert[j]];
    }
    for (int64_t j = 0; j < k; ++j) {
      dp[expert[j]] += renormalise ? (dgate[j] - weighted / sum) / sum : static_cast<double>(dgate[j]);
    }
    double common = 0;
    for (int64_t e = 0; e < experts; ++e) common += p[e] * dp[e];
    for (int64_t e = 0; e < experts; ++e)
      call.out<T>(0)[t * experts + e] = static_cast<T>(p[e] * (dp[e] - common));
  }
}

// visit(token, choice, row): every choice that has a slot, with the row of [b n e c] that it stands for.
template <class Visit>
void each_slot(const Call& call, const int32_t* expert, const int32_t* slot, Visit&& visit) {
  const int64_t tokens = call.size("b") * call.size("s"), k = call.size("k");
  const int64_t experts = call.size("e"), capacity = call.size("c"), group = call.integer("group");
  check_indices(call.problem.kind(), "expert", expert, tokens * k, experts, Padding::refused);
  check_indices(call.problem.kind(), "slot", slot, tokens * k, capacity, Padding::allowed);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = t * k; j < (t + 1) * k; ++j) {
      if (slot[j] >= 0) visit(t, j, (t / group * experts + expert[j]) * capacity + slot[j]);
    }
  }
}

// y[row] = sum of x[token] over the choices of that row: one or none.
template <class T>
void dispatch(const Call& call) {
  const int64_t width = call.size("h");
  const T* x = call.in<T>(0);
  T* y = call.out<T>(0);
  std::fill_n(y, call.problem.outputs()[0].elements(), T{0});
  each_slot(call, call.in<int32_t>(1), call.in<int32_t>(2), [&](int64_t token, int64_t, int64_t row) {
    for (int64_t h = 0; h < width; ++h) y[row * width + h] += x[token * width + h];
  });
}

// x[token] = sum over its choices of weight[choice] * y[row]; no weight: 1.
template <class T>
void gather(const Call& call, const T* y, const T* weight, const int32_t* expert, const int32_t* slot, T* x) {
  const int64_t width = call.size("h"), elements = call.size("b") * call.size("s") * width;
  double* sum = call.workspace<double>();
  std::fill_n(sum, elements, 0.0);
  each_slot(call, expert, slot, [&](int64_t token, int64_t choice, int64_t row) {
    const double w = weight != nullptr ? static_cast<double>(weight[choice]) : 1;
    for (int64_t h = 0; h < width; ++h) sum[token * width + h] += w * y[row * width + h];
  });
  for (int64_t i = 0; i < elements; ++i) x[i] = static_cast<T>(sum[i]);
}

template <class T>
void dispatch_dgrad(const Call& call) {
  gather<T>(call, call.in<T>(0), nullptr, call.in<int32_t>(1), call.in<int32_t>(2), call.out<T>(0));
}

template <class T>
void combine(const Call& call) {
  gather(call, call.in<T>(0), call.in<T>(1), call.in<int32_t>(2), call.in<int32_t>(3), call.out<T>(0));
}

// dy[row] = gate * dx[token]; dgate = dx[token] . y[row], 0 without a slot.
template <class T>
void combine_dgrad(const Call& call) {
  const int64_t width = call.size("h");
  const T *dx = call.in<T>(0), *y = call.in<T>(1), *gate = call.in<T>(2);
  T *dy = call.out<T>(0), *dgate = call.out<T>(1);
  std::fill_n(dy, call.problem.outputs()[0].elements(), T{0});
  std::fill_n(dgate, call.problem.outputs()[1].elements(), T{0});
  each_slot(call, call.in<int32_t>(3), call.in<int32_t>(4), [&](int64_t token, int64_t choice, int64_t row) {
    double dot = 0;
    for (int64_t h = 0; h < width; ++h) {
      const double d = dx[token * width + h];
      dot += d * y[row * width + h];
      dy[row * width + h] += static_cast<T>(d * gate[choice]);
    }
    dgate[choice] = static_cast<T>(dot);
  });
}

int64_t token_bytes(const Problem& p) { return 8 * p.size("b") * p.size("s") * p.size("h"); }

int64_t expert_bytes(const Problem& p) { return 8 * 3 * p.size("e"); }

constexpr Entry kOps[] = {
    {"route_topk", route_topk<float>, route_topk<double>, nullptr, nullptr, expert_bytes},
    {"route_topk_dgrad", route_topk_dgrad<float>, route_topk_dgrad<double>, nullptr, nullptr, expert_bytes},
    {"dispatch", dispatch<float>, dispatch<double>},
    {"dispatch_dgrad", dispatch_dgrad<float>, dispatch_dgrad<double>, nullptr, nullptr, token_bytes},
    {"combine", combine<float>, combine<double>, nullptr, nullptr, token_bytes},
    {"combine_dgrad", combine_dgrad<float>, combine_dgrad<double>},
};

}  // namespace

std::span<const Entry> routing_ops() { return kOps; }

}  // namespace tenon::kernels::reference
