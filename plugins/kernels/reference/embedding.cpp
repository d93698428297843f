// embedding and its gradient.
#include <algorithm>

#include "op.h"

namespace tenon::kernels::reference {
namespace {

// y[token, h] = w[id[token], h]
template <class T>
void embedding(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), width = call.size("h"), vocabulary = call.size("v");
  const auto* ids = call.in<int32_t>(0);
  const T* w = call.in<T>(1);
  T* y = call.out<T>(0);
  check_indices(call.problem.kind(), "ids", ids, tokens, vocabulary, Padding::refused);
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t id = ids[t];
    for (int64_t h = 0; h < width; ++h) y[t * width + h] = w[id * width + h];
  }
}

// dw[v, h] = sum of dy[token, h] over tokens whose id is v
template <class T>
void embedding_wgrad(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), width = call.size("h"), vocabulary = call.size("v");
  const T* dy = call.in<T>(0);
  const auto* ids = call.in<int32_t>(1);
  T* dw = call.out<T>(0);
  check_indices(call.problem.kind(), "ids", ids, tokens, vocabulary, Padding::refused);
  double* sum = call.workspace<double>();
  std::fill_n(sum, vocabulary * width, 0.0);
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t id = ids[t];
    for (int64_t h = 0; h < width; ++h) sum[id * width + h] += dy[t * width + h];
  }
  for (int64_t i = 0; i < vocabulary * width; ++i) call.put(dw[i], sum[i]);
}

constexpr Entry kOps[] = {
    {"embedding", embedding<float>, embedding<double>},
    {"embedding_wgrad", embedding_wgrad<float>, embedding_wgrad<double>, nullptr, nullptr,
     [](const Problem& p) { return 8 * p.size("v") * p.size("h"); }},
};

}  // namespace

std::span<const Entry> embedding_ops() { return kOps; }

}  // namespace tenon::kernels::reference
