// cross_entropy and its gradient, sqnorm, clip_scale.
#include <algorithm>
#include <cmath>

#include "op.h"

namespace tenon::kernels::reference {
namespace {

template <class T>
void cross_entropy(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), vocabulary = call.size("v");
  const T* logits = call.in<T>(0);
  const auto* targets = call.in<int32_t>(1);
  T* lse = call.out<T>(2);
  check_indices(call.problem.kind(), "targets", targets, tokens, vocabulary, Padding::allowed);
  double loss = 0;
  int64_t count = 0;
  for (int64_t t = 0; t < tokens; ++t, logits += vocabulary) {
    const double top = *std::max_element(logits, logits + vocabulary);
    double sum = 0;
    for (int64_t v = 0; v < vocabulary; ++v) sum += std::exp(logits[v] - top);
    const double row_lse = top + std::log(sum);
    lse[t] = static_cast<T>(row_lse);
    if (targets[t] < 0) continue;
    loss += row_lse - logits[targets[t]];
    ++count;
  }
  *call.out<double>(0) = loss;
  *call.out<int64_t>(1) = count;
}

template <class T>
void cross_entropy_dgrad(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), vocabulary = call.size("v");
  const T *logits = call.in<T>(0), *lse = call.in<T>(2);
  const auto* targets = call.in<int32_t>(1);
  T* dlogits = call.out<T>(0);
  check_indices(call.problem.kind(), "targets", targets, tokens, vocabulary, Padding::allowed);
  for (int64_t t = 0; t < tokens; ++t, logits += vocabulary, dlogits += vocabulary) {
    for (int64_t v = 0; v < vocabulary; ++v) {
      const double softmax = std::exp(static_cast<double>(logits[v]) - lse[t]);
      dlogits[v] = static_cast<T>(targets[t] < 0 ? 0 : softmax - (v == targets[t] ? 1 : 0));
    }
  }
}

template <class T>
void sqnorm(const Call& call) {
  const int64_t n = call.problem.inputs()[0].elements();
  const T* x = call.in<T>(0);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  *call.out<double>(0) = sum;
}

void clip_scale(const Call& call) {
  const size_t parts = call.problem.inputs().size() - 1;
  double sum = 0;
  for (size_t i = 0; i < parts; ++i) sum += *call.in<double>(i);
  const auto count = static_cast<double>(*call.in<int64_t>(parts));
  const double clip = call.number("clip");
  const double norm = count == 0 ? 0 : std::sqrt(sum) / count;
  const double factor = clip > 0 && norm > clip ? clip / norm : 1;
  *call.out<double>(0) = norm;
  *call.out<double>(1) = count == 0 ? 0 : factor / count;
}

constexpr Entry kOps[] = {
    {"cross_entropy", cross_entropy<float>, cross_entropy<double>},
    {"cross_entropy_dgrad", cross_entropy_dgrad<float>, cross_entropy_dgrad<double>},
    {"sqnorm", sqnorm<float>, sqnorm<double>},
    {"clip_scale", nullptr, clip_scale},
};

}  // namespace

std::span<const Entry> loss_ops() { return kOps; }

}  // namespace tenon::kernels::reference
