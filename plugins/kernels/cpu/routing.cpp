// Mixture of experts: which tokens go to which expert, and the moves there and back. Parts are routing
// groups, slots or tokens; each result is written by one part.
#include <cmath>

#include "op.h"

namespace tenon::kernels::cpu {
namespace {

// p = softmax of one token's logits.
void softmax(const auto* logits, double* p, int64_t n) {
  const double top = *std::max_element(logits, logits + n);
  double sum = 0;
  for (int64_t e = 0; e < n; ++e) sum += p[e] = std::exp(logits[e] - top);
  for (int64_t e = 0; e < n; ++e) p[e] /= sum;
}

// The k largest, the largest first, the lower index first among equals. `taken`: scratch, one per expert.
void choose(const auto* logits, int64_t experts, int32_t* expert, int64_t k, double* taken) {
  std::fill_n(taken, experts, 0.0);
  for (int64_t j = 0; j < k; ++j) {
    int32_t best = -1;
    for (int32_t e = 0; e < experts; ++e) {
      if (taken[e] == 0 && (best < 0 || logits[e] > logits[best])) best = e;
    }
    expert[j] = best;
    taken[best] = 1;
  }
}

// Choices of a group per expert.
void count_choices(const int32_t* expert, int64_t choices, double* counts, int64_t experts) {
  std::fill_n(counts, experts, 0.0);
  for (int64_t i = 0; i < choices; ++i) ++counts[expert[i]];
}

// Routing groups take turns over a fixed number of parts, each with scratch for three numbers per expert.
constexpr int64_t kParts = 32;

struct Routing {
  int64_t seq, tokens, experts, k, group, groups, parts;

  explicit Routing(const Problem& p)
      : seq(p.size("s")),
        tokens(p.size("b") * seq),
        experts(p.size("e")),
        k(p.size("k")),
        group(p.integer("group")),
        groups(tokens / group),
        parts(std::min(kParts, groups)) {}

  // Whether a group is of a sample that exists; those of others are no part of aux.
  bool exists(const Call& call, size_t samples, int64_t g) const {
    return call.in<int64_t>(samples)[g * group / seq] >= 0;
  }

  // body(group, scratch)
  template <class Body>
  void each_group(const Call& call, Body&& body) const {
    call.parallel(parts, [&](int64_t part) {
      double* scratch = call.workspace<double>() + part * 3 * experts;
      for (int64_t g = part; g < groups; g += parts) body(g, scratch);
    });
  }
};

int64_t routing_bytes(const Problem& p) {
  const Routing n(p);
  return (n.parts * 3 * n.experts + n.groups) * 8;
}

template <class T>
void route_tokens(const Call& call, const Routing& n, int64_t first, double* mean, double* p, double* taken) {
  const bool renormalise = call.problem.integer("renormalise") != 0;
  std::fill_n(mean, n.experts, 0.0);
  for (int64_t t = first; t < first + n.group; ++t) {
    const T* logits = call.in<T>(0) + t * n.experts;
    int32_t* expert = call.out<int32_t>(1) + t * n.k;
    softmax(logits, p, n.experts);
    choose(logits, n.experts, expert, n.k, taken);
    double sum = 0;
    for (int64_t j = 0; j < n.k; ++j) sum += p[expert[j]];
    for (int64_t j = 0; j < n.k; ++j)
      call.out<T>(0)[t * n.k + j] = static_cast<T>(p[expert[j]] / (renormalise ? sum : 1));
    for (int64_t e = 0; e < n.experts; ++e) mean[e] += p[e] / static_cast<double>(n.group);
  }
}

// First choices before second ones, a token before those behind it. Leaves the number of choices in `counts`.
void give_slots(const Call& call, const Routing& n, int64_t first, double* counts) {
  const auto capacity = static_cast<double>(call.problem.integer("capacity"));
  const int32_t* expert = call.out<int32_t>(1) + first * n.k;
  int32_t* slot = call.out<int32_t>(2) + first * n.k;
  std::fill_n(counts, n.experts, 0.0);
  for (int64_t j = 0; j < n.k; ++j) {
    for (int64_t t = 0; t < n.group; ++t) {
      const double next = counts[expert[t * n.k + j]]++;
      slot[t * n.k + j] = next < capacity ? static_cast<int32_t>(next) : -1;
    }
  }
}

template <class T>
void route_topk(const Call& call) {
  const Routing n(call.problem);
  double* balance = call.workspace<double>() + n.parts * 3 * n.experts;  // of each group
  n.each_group(call, [&](int64_t g, double* scratch) {
    double *mean = scratch, *p = mean + n.experts, *counts = p + n.experts;
    route_tokens<T>(call, n, g * n.group, mean, p, counts);
    give_slots(call, n, g * n.group, counts);
    balance[g] = 0;
    if (!n.exists(call, 1, g)) return;
    for (int64_t e = 0; e < n.experts; ++e)
      balance[g] += counts[e] / static_cast<double>(n.group * n.k) * mean[e];
  });
  double aux = 0;
  for (int64_t g = 0; g < n.groups; ++g) aux += static_cast<double>(n.group * n.experts) * balance[g];
  *call.out<double>(3) = call.problem.number("aux") * aux;
}

// Adds the gradient of one token's gates to that of its probabilities.
template <class T>
void add_gate_gradient(const T* dgate, const int32_t* expert, int64_t k, bool renormalise, const double* p,
                       double* dp) {
  double sum = 1, mean = 0;
  if (renormalise) {
    sum = 0;
    for (int64_t j = 0; j < k; ++j) {
      sum += p[expert[j]];
      mean += dgate[j] * p[expert[j]];
    }
    mean /= sum;
  }
  for (int64_t j = 0; j < k; ++j) dp[expert[j]] += (dgate[j] - mean) / sum;
}

template <class T>
void route_topk_dgrad(const Call& call) {
  const Routing n(call.problem);
  const bool renormalise = call.problem.integer("renormalise") != 0;
  const auto* expert = call.in<int32_t>(3);
  check_indices(call.problem.kind(), "expert", expert, n.tokens * n.k, n.experts, Padding::refused);
  // Of each p, for one choice in the group.
  const double aux =
      call.problem.number("aux") * static_cast<double>(n.experts) / static_cast<double>(n.group * n.k);
  n.each_group(call, [&](int64_t g, double* scratch) {
    double *counts = scratch, *p = counts + n.experts, *dp = p + n.experts;
    const double of_choice = n.exists(call, 2, g) ? aux : 0;
    count_choices(expert + g * n.group * n.k, n.group * n.k, counts, n.experts);
    for (int64_t t = g * n.group; t < (g + 1) * n.group; ++t) {
      T* dlogits = call.out<T>(0) + t * n.experts;
      softmax(call.in<T>(1) + t * n.experts, p, n.experts);
      for (int64_t e = 0; e < n.experts; ++e) dp[e] = of_choice * counts[e];
      add_gate_gradient(call.in<T>(0) + t * n.k, expert + t * n.k, n.k, renormalise, p, dp);
      double common = 0;
      for (int64_t e = 0; e < n.experts; ++e) common += p[e] * dp[e];
      for (int64_t e = 0; e < n.experts; ++e) dlogits[e] = static_cast<T>(p[e] * (dp[e] - common));
    }
  });
}

// Where the choices of the tokens went: rows of [b n e c].
struct Slots {
  int64_t tokens, experts, capacity, k, width, group, rows;
  const int32_t *expert, *slot;

  Slots(const Call& call, size_t expert_input)
      : tokens(call.size("b") * call.size("s")),
        experts(call.size("e")),
        capacity(call.size("c")),
        k(call.size("k")),
        width(call.size("h")),
        group(call.problem.integer("group")),
        rows(call.size("b") * call.size("n") * experts * capacity),
        expert(call.in<int32_t>(expert_input)),
        slot(call.in<int32_t>(expert_input + 1)) {
    check_indices(call.problem.kind(), "expert", expert, tokens * k, experts, Padding::refused);
    check_indices(call.problem.kind(), "slot", slot, tokens * k, capacity, Padding::allowed);
  }
  // The row of choice i, which has a slot.
  int64_t row(int64_t i) const { return (i / k / group * experts + expert[i]) * capacity + slot[i]; }
  // The choice in each row, -1 where it is empty.
  const int32_t* choices(const Call& call) const {
    int32_t* choice = call.workspace<int32_t>();
    std::fill_n(choice, rows, -1);
    for (int64_t i = 0; i < tokens * k; ++i) {
      if (slot[i] >= 0) choice[row(i)] = static_cast<int32_t>(i);
    }
    return choice;
  }
};

int64_t choice_bytes(const Problem& p) {
  return p.size("b") * p.size("n") * p.size("e") * p.size("c") * static_cast<int64_t>(sizeof(int32_t));
}

// y[row] = weight[choice] * x[token], 0 in empty rows; no weight: 1.
template <class T>
void scatter(const Call& call, const Slots& n, const T* x, const T* weight, T* y) {
  const int32_t* choice = n.choices(call);
  call.rows(n.rows, n.width, [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; ++row) {
      T* to = y + row * n.width;
      if (choice[row] < 0) {
        std::fill_n(to, n.width, T{0});
        continue;
      }
      const T* from = x + choice[row] / n.k * n.width;
      const T w = weight != nullptr ? weight[choice[row]] : T{1};
      for (int64_t h = 0; h < n.width; ++h) to[h] = w * from[h];
    }
  });
}

// x[token] = sum over its choices, in order, of weight[choice] * y[row]; no weight: 1.
template <class T>
void gather(const Call& call, const Slots& n, const T* y, const T* weight, T* x) {
  call.rows(n.tokens, n.width * n.k, [&](int64_t first, int64_t count) {
    for (int64_t t = first; t < first + count; ++t) {
      T* to = x + t * n.width;
      std::fill_n(to, n.width, T{0});
      for (int64_t i = t * n.k; i < (t + 1) * n.k; ++i) {
        if (n.slot[i] < 0) continue;
        const T* from = y + n.row(i) * n.width;
        const T w = weight != nullptr ? weight[i] : T{1};
        for (int64_t h = 0; h < n.width; ++h) to[h] += w * from[h];
      }
    }
  });
}

template <class T>
void dispatch(const Call& call) {
  scatter<T>(call, Slots(call, 1), call.in<T>(0), nullptr, call.out<T>(0));
}

template <class T>
void dispatch_dgrad(const Call& call) {
  gather<T>(call, Slots(call, 1), call.in<T>(0), nullptr, call.out<T>(0));
}

template <class T>
void combine(const Call& call) {
  gather(call, Slots(call, 2), call.in<T>(0), call.in<T>(1), call.out<T>(0));
}

template <class T>
void combine_dgrad(const Call& call) {
  const Slots n(call, 3);
  const T *dx = call.in<T>(0), *y = call.in<T>(1);
  scatter(call, n, dx, call.in<T>(2), call.out<T>(0));
  call.rows(n.tokens * n.k, n.width, [&](int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) {
      double dot = 0;
      if (n.slot[i] >= 0) {
        const T *a = dx + i / n.k * n.width, *b = y + n.row(i) * n.width;
#pragma omp simd reduction(+ : dot)
        for (int64_t h = 0; h < n.width; ++h) dot += static_cast<double>(a[h]) * static_cast<double>(b[h]);
      }
      call.out<T>(1)[i] = static_cast<T>(dot);
    }
  });
}

constexpr Entry kOps[] = {
    {"route_topk", route_topk<float>, route_topk<double>, nullptr, nullptr, routing_bytes},
    {"route_topk_dgrad", route_topk_dgrad<float>, route_topk_dgrad<double>, nullptr, nullptr, routing_bytes},
    {"dispatch", dispatch<float>, dispatch<double>, nullptr, nullptr, choice_bytes},
    {"dispatch_dgrad", dispatch_dgrad<float>, dispatch_dgrad<double>},
    {"combine", combine<float>, combine<double>},
    {"combine_dgrad", combine_dgrad<float>, combine_dgrad<double>, nullptr, nullptr, choice_bytes},
};

}  // namespace

std::span<const Entry> routing_ops() { return kOps; }

}  // namespace tenon::kernels::cpu
