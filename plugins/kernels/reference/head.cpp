// linear_cross_entropy and its gradients: each number is rounded where the single ops round it.
#include <algorithm>
#include <cmath>

#include "op.h"

namespace tenon::kernels::reference {
namespace {

struct Sizes {
  int64_t tokens, vocabulary, width;
  explicit Sizes(const Problem& p)
      : tokens(p.size("b") * p.size("s")), vocabulary(p.size("v")), width(p.size("k..")) {}
};

int64_t logits_bytes(const Problem& p) {
  const Sizes n(p);
  return n.tokens * n.vocabulary * dtype_bytes(p.dtype());
}

template <class T>
void logits_of(const Call& call) {
  const Sizes n(call.problem);
  const T *x = call.in<T>(0), *w = call.in<T>(1);
  for (int64_t i = 0; i < n.tokens * n.vocabulary; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < n.width; ++k)
      sum += static_cast<double>(x[i / n.vocabulary * n.width + k]) * w[i % n.vocabulary * n.width + k];
    call.workspace<T>()[i] = static_cast<T>(sum);
  }
}

// Loss and count; gives the log of the sum of exponentials to visit(token, lse).
template <class T, class Visit>
void losses(const Call& call, Visit visit) {
  const Sizes n(call.problem);
  const auto* targets = call.in<int32_t>(2);
  check_indices(call.problem.kind(), "targets", targets, n.tokens, n.vocabulary, Padding::allowed);
  double loss = 0;
  int64_t count = 0;
  for (int64_t t = 0; t < n.tokens; ++t) {
    const T* logits = call.workspace<T>() + t * n.vocabulary;
    const double top = *std::max_element(logits, logits + n.vocabulary);
    double sum = 0;
    for (int64_t v = 0; v < n.vocabulary; ++v) sum += std::exp(logits[v] - top);
    const double lse = top + std::log(sum);
    loss += targets[t] < 0 ? 0 : lse - logits[targets[t]];
    count += targets[t] < 0 ? 0 : 1;
    visit(t, static_cast<T>(lse));
  }
  *call.out<double>(0) = loss;
  *call.out<int64_t>(1) = count;
}

template <class T>
void linear_cross_entropy(const Call& call) {
  logits_of<T>(call);
  losses<T>(call, [](int64_t, T) {});
}

template <class T>
void linear_cross_entropy_grad(const Call& call) {
  const Sizes n(call.problem);
  const T *x = call.in<T>(0), *w = call.in<T>(1);
  const auto* targets = call.in<int32_t>(2);
  T *grad = call.workspace<T>(), *dw = call.out<T>(2), *dx = call.out<T>(3);
  logits_of<T>(call);
  losses<T>(call, [&](int64_t t, T lse) {
    for (int64_t v = 0; v < n.vocabulary; ++v) {
      T& at = grad[t * n.vocabulary + v];
      const double softmax = std::exp(static_cast<double>(at) - lse);
      at = static_cast<T>(targets[t] < 0 ? 0 : softmax - (v == targets[t] ? 1 : 0));
    }
  });
  for (int64_t i = 0; i < n.vocabulary * n.width; ++i) {
    double sum = 0;
    for (int64_t t = 0; t < n.tokens; ++t)
      sum += static_cast<double>(grad[t * n.vocabulary + i / n.width]) * x[t * n.width + i % n.width];
    call.put(dw[i], sum);
  }
  for (int64_t i = 0; i < n.tokens * n.width; ++i) {
    double sum = 0;
    for (int64_t v = 0; v < n.vocabulary; ++v)
      sum += static_cast<double>(grad[i / n.width * n.vocabulary + v]) * w[v * n.width + i % n.width];
    dx[i] = static_cast<T>(sum);
  }
}

constexpr Entry kOps[] = {
    {"linear_cross_entropy", linear_cross_entropy<float>, linear_cross_entropy<double>, nullptr, nullptr,
     logits_bytes},
    {"linear_cross_entropy_grad", linear_cross_entropy_grad<float>, linear_cross_entropy_grad<double>,
     nullptr, nullptr, logits_bytes},
};

}  // namespace

std::span<const Entry> head_ops() { return kOps; }

}  // namespace tenon::kernels::reference
