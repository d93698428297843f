// cross_entropy and its gradient, sqnorm, clip_scale. Sums are in double, by fixed chunks in order.
#include <cmath>

#include "token_loss.h"

namespace tenon::kernels::cpu {
namespace {

template <class T>
void cross_entropy(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), vocabulary = call.size("v");
  const auto* targets = call.in<int32_t>(1);
  check_indices(call.problem.kind(), "targets", targets, tokens, vocabulary, Padding::allowed);
  double* losses = call.workspace<double>();
  call.rows(tokens, vocabulary, [&](int64_t row, int64_t n) {
    for (int64_t t = row; t < row + n; ++t)
      losses[t] = token_loss(call, call.in<T>(0) + t * vocabulary, vocabulary, targets[t], call.out<T>(2)[t]);
  });
  sum_losses(call, losses, targets);
}

template <class T>
void cross_entropy_dgrad(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), vocabulary = call.size("v");
  const auto* targets = call.in<int32_t>(1);
  check_indices(call.problem.kind(), "targets", targets, tokens, vocabulary, Padding::allowed);
  call.rows(tokens, vocabulary, [&](int64_t row, int64_t n) {
    for (int64_t t = row; t < row + n; ++t)
      token_gradient(call, call.in<T>(0) + t * vocabulary, vocabulary, targets[t], call.in<T>(2)[t],
                     call.out<T>(0) + t * vocabulary);
  });
}

constexpr int64_t kSquares = 65536;  // elements of one partial sum

int64_t sqnorm_parts(const Problem& p) { return (p.inputs()[0].elements() + kSquares - 1) / kSquares; }

template <class T>
void sqnorm(const Call& call) {
  double* partial = call.workspace<double>();
  call.ranges(call.problem.inputs()[0].elements(), kSquares, [&](int64_t begin, int64_t n) {
    partial[begin / kSquares] = call.loops<T>().sqnorm(call.in<T>(0) + begin, n);
  });
  double sum = 0;
  for (int64_t i = 0; i < sqnorm_parts(call.problem); ++i) sum += partial[i];
  *call.out<double>(0) = sum;
}

void clip_scale(const Call& call) {
  const size_t parts = call.problem.inputs().size() - 1;
  double sum = 0;
  for (size_t i = 0; i < parts; ++i) sum += *call.in<double>(i);
  const auto count = static_cast<double>(*call.in<int64_t>(parts));
  const double clip = call.problem.number("clip");
  const double norm = count == 0 ? 0 : std::sqrt(sum) / count;
  const double factor = clip > 0 && norm > clip ? clip / norm : 1;
  *call.out<double>(0) = norm;
  *call.out<double>(1) = count == 0 ? 0 : factor / count;
}

constexpr Entry kOps[] = {
    {"cross_entropy", cross_entropy<float>, cross_entropy<double>, nullptr, nullptr,
     [](const Problem& p) { return p.size("b") * p.size("s") * 8; }},
    {"cross_entropy_dgrad", cross_entropy_dgrad<float>, cross_entropy_dgrad<double>},
    {"sqnorm", sqnorm<float>, sqnorm<double>, nullptr, nullptr,
     [](const Problem& p) { return sqnorm_parts(p) * 8; }},
    {"clip_scale", nullptr, clip_scale},
};

}  // namespace

std::span<const Entry> loss_ops() { return kOps; }

}  // namespace tenon::kernels::cpu
