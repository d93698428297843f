// cross_entropy and its gradient, sqnorm, clip_scale. Sums are in double, by fixed chunks in order.
#include <cmath>

#include "op.h"

namespace tenon::kernels::cpu {
namespace {

int64_t rows_per_part(const Problem& p) {
  return std::max<int64_t>(1, kPartElements / std::max<int64_t>(1, p.size("v")));
}
int64_t loss_parts(const Problem& p) {
  const int64_t rows = rows_per_part(p);
  return (p.size("b") * p.size("s") + rows - 1) / rows;
}

template <class T>
void cross_entropy(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), vocabulary = call.size("v");
  const int64_t rows = rows_per_part(call.problem), parts = loss_parts(call.problem);
  const T* logits = call.in<T>(0);
  const auto* targets = call.in<int32_t>(1);
  check_indices(call.problem.kind(), "targets", targets, tokens, vocabulary, Padding::allowed);
  T* lse = call.out<T>(2);
  double* partial = call.workspace<double>();
  call.ranges(tokens, rows, [&](int64_t row, int64_t n) {
    double loss = 0;
    for (int64_t t = row; t < row + n; ++t) {
      const double row_lse = call.loops<T>().logsumexp(logits + t * vocabulary, vocabulary);
      lse[t] = static_cast<T>(row_lse);
      if (targets[t] >= 0) loss += row_lse - static_cast<double>(logits[t * vocabulary + targets[t]]);
    }
    partial[row / rows] = loss;
  });
  double loss = 0;
  for (int64_t i = 0; i < parts; ++i) loss += partial[i];
  *call.out<double>(0) = loss;
  *call.out<int64_t>(1) =
      std::count_if(targets, targets + tokens, [](int32_t target) { return target >= 0; });
}

template <class T>
void cross_entropy_dgrad(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), vocabulary = call.size("v");
  const auto* targets = call.in<int32_t>(1);
  check_indices(call.problem.kind(), "targets", targets, tokens, vocabulary, Padding::allowed);
  call.rows(tokens, vocabulary, [&](int64_t row, int64_t n) {
    for (int64_t t = row; t < row + n; ++t) {
      T* dlogits = call.out<T>(0) + t * vocabulary;
      if (targets[t] < 0) {
        std::fill_n(dlogits, vocabulary, T{0});
      } else {
        call.loops<T>().softmax(call.in<T>(0) + t * vocabulary, call.in<T>(2)[t], dlogits, vocabulary);
        dlogits[targets[t]] -= T{1};
      }
    }
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
     [](const Problem& p) { return loss_parts(p) * 8; }},
    {"cross_entropy_dgrad", cross_entropy_dgrad<float>, cross_entropy_dgrad<double>},
    {"sqnorm", sqnorm<float>, sqnorm<double>, nullptr, nullptr,
     [](const Problem& p) { return sqnorm_parts(p) * 8; }},
    {"clip_scale", nullptr, clip_scale},
};

}  // namespace

std::span<const Entry> loss_ops() { return kOps; }

}  // namespace tenon::kernels::cpu
