// The loss of single tokens, and its gradient, for those who have their logits.
#pragma once

#include "op.h"

namespace tenon::kernels::cpu {

// Its loss, 0 for padding; sets lse, the log of the sum of exponentials.
template <class T>
double token_loss(const Call& call, const T* logits, int64_t vocabulary, int32_t target, T& lse) {
  const double sum = call.loops<T>().logsumexp(logits, vocabulary);
  lse = static_cast<T>(sum);
  return target < 0 ? 0 : sum - static_cast<double>(logits[target]);
}

// dlogits may be logits.
template <class T>
void token_gradient(const Call& call, const T* logits, int64_t vocabulary, int32_t target, T lse,
                    T* dlogits) {
  if (target < 0) {
    std::fill_n(dlogits, vocabulary, T{0});
  } else {
    call.loops<T>().softmax(logits, lse, dlogits, vocabulary);
    dlogits[target] -= T{1};
  }
}

// Writes the outputs loss and count; `losses`: of all tokens. Sums are in double, of parts of the tokens, in
// order.
inline void sum_losses(const Call& call, const double* losses, const int32_t* targets) {
  const int64_t tokens = call.size("b") * call.size("s");
  const int64_t rows = std::max<int64_t>(1, kPartElements / std::max<int64_t>(1, call.size("v")));
  double loss = 0;
  for (int64_t begin = 0; begin < tokens; begin += rows) {
    double part = 0;
    for (int64_t t = begin; t < std::min(tokens, begin + rows); ++t) part += losses[t];
    loss += part;
  }
  *call.out<double>(0) = loss;
  *call.out<int64_t>(1) =
      std::count_if(targets, targets + tokens, [](int32_t target) { return target >= 0; });
}

}  // namespace tenon::kernels::cpu
