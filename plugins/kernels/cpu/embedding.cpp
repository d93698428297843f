// embedding and its gradient.
#include <cstring>

#include "op.h"

namespace tenon::kernels::cpu {
namespace {

template <class T>
void embedding(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), width = call.size("h");
  const auto* ids = call.in<int32_t>(0);
  check_indices(call.problem.kind(), "ids", ids, tokens, call.size("v"), Padding::refused);
  call.rows(tokens, width, [&](int64_t row, int64_t n) {
    for (int64_t t = row; t < row + n; ++t) {
      std::memcpy(call.out<T>(0) + t * width, call.in<T>(1) + ids[t] * width,
                  static_cast<size_t>(width) * sizeof(T));
    }
  });
}

// Parts are stripes of columns: each adds all tokens in order, whatever their ids are.
template <class T>
void embedding_wgrad(const Call& call) {
  constexpr int64_t kStripe = 32;
  const int64_t tokens = call.size("b") * call.size("s"), width = call.size("h");
  const T* dy = call.in<T>(0);
  const auto* ids = call.in<int32_t>(1);
  T* dw = call.out<T>(0);
  check_indices(call.problem.kind(), "ids", ids, tokens, call.size("v"), Padding::refused);
  if (!call.problem.accumulate()) {
    call.elements(call.size("v") * width,
                  [&](int64_t begin, int64_t n) { std::fill_n(dw + begin, n, T{0}); });
  }
  call.ranges(width, kStripe, [&](int64_t begin, int64_t n) {
    for (int64_t t = 0; t < tokens; ++t) {
      const T* from = dy + t * width + begin;
      T* to = dw + ids[t] * width + begin;
      for (int64_t i = 0; i < n; ++i) to[i] += from[i];
    }
  });
}

constexpr Entry kOps[] = {
    {"embedding", embedding<float>, embedding<double>},
    {"embedding_wgrad", embedding_wgrad<float>, embedding_wgrad<double>},
};

}  // namespace

std::span<const Entry> embedding_ops() { return kOps; }

}  // namespace tenon::kernels::cpu
