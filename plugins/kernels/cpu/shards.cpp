// What parallel strategies need: losses on one shard of a vocabulary, attention over blocks of keys, and
// norms and sums that do not depend on how a gradient is cut. docs/reference/ops.md says what each computes.
#include <cmath>
#include <limits>

#include "shard.h"

namespace tenon::kernels::cpu {
namespace {

template <class T>
void cross_entropy_shard(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), vocabulary = call.size("v");
  const auto* targets = call.in<int32_t>(1);
  const Shard shard = Shard::of(call);
  call.rows(tokens, vocabulary, [&](int64_t first, int64_t n) {
    for (int64_t t = first; t < first + n; ++t) {
      const T* logits = call.in<T>(0) + t * vocabulary;
      call.out<T>(0)[t] = static_cast<T>(call.loops<T>().logsumexp(logits, vocabulary));
      const int64_t row = shard.row(targets[t]);
      call.out<T>(1)[t] = row < 0 ? T{0} : logits[row];
    }
  });
}

template <class T>
void cross_entropy_join(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), shards = call.size("n");
  const T *part = call.in<T>(0), *picked = call.in<T>(1);
  const auto* targets = call.in<int32_t>(2);
  double loss = 0;
  int64_t count = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    double top = static_cast<double>(part[t]), sum = 0;
    for (int64_t n = 1; n < shards; ++n) top = std::max(top, static_cast<double>(part[n * tokens + t]));
    for (int64_t n = 0; n < shards; ++n) sum += std::exp(static_cast<double>(part[n * tokens + t]) - top);
    const double lse = top + std::log(sum);
    call.out<T>(2)[t] = static_cast<T>(lse);
    if (targets[t] < 0) continue;
    loss += lse - static_cast<double>(picked[t]);
    ++count;
  }
  *call.out<double>(0) = loss;
  *call.out<int64_t>(1) = count;
}

template <class T>
void cross_entropy_shard_dgrad(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), vocabulary = call.size("v");
  const auto* targets = call.in<int32_t>(1);
  const Shard shard = Shard::of(call);
  call.rows(tokens, vocabulary, [&](int64_t first, int64_t n) {
    for (int64_t t = first; t < first + n; ++t) {
      T* dlogits = call.out<T>(0) + t * vocabulary;
      if (targets[t] < 0) {
        std::fill_n(dlogits, vocabulary, T{0});
        continue;
      }
      call.loops<T>().softmax(call.in<T>(0) + t * vocabulary, call.in<T>(2)[t], dlogits, vocabulary);
      if (const int64_t row = shard.row(targets[t]); row >= 0) dlogits[row] -= T{1};
    }
  });
}

template <class T>
void attention_merge(const Call& call) {
  constexpr T kNothing = -std::numeric_limits<T>::infinity();
  const int64_t queries = call.size("s"), heads = call.size("g") * call.size("r"), width = call.size("d");
  const bool accumulate = call.problem.accumulate();
  call.rows(call.size("b") * queries * heads, width, [&](int64_t first, int64_t n) {
    for (int64_t row = first; row < first + n; ++row) {
      const int64_t head = row % heads, s = row / heads % queries, b = row / (heads * queries);
      const int64_t at = (b * heads + head) * queries + s;
      const T mine = accumulate ? call.out<T>(1)[at] : kNothing, other = call.in<T>(1)[at];
      const T top = std::max(mine, other);
      const T sum = top == kNothing ? kNothing : top + std::log(std::exp(mine - top) + std::exp(other - top));
      const T keep = mine == kNothing ? T{0} : std::exp(mine - sum);
      const T take = other == kNothing ? T{0} : std::exp(other - sum);
      const T* part = call.in<T>(0) + row * width;
      T* o = call.out<T>(0) + row * width;
      if (keep == T{0}) std::fill_n(o, width, T{0});  // whatever was there before
      for (int64_t d = 0; d < width; ++d) o[d] = keep * o[d] + take * part[d];
      call.out<T>(1)[at] = sum;
    }
  });
}

template <class T>
void sqnorm_chunks(const Call& call) {
  const int64_t n = call.size("e"), chunk = call.problem.integer("chunk");
  call.ranges(call.size("c"), std::max<int64_t>(1, kPartElements / chunk), [&](int64_t first, int64_t count) {
    for (int64_t c = first; c < first + count; ++c) {
      const int64_t begin = c * chunk;
      call.out<double>(0)[c] = call.loops<T>().sqnorm(call.in<T>(0) + begin, std::min(chunk, n - begin));
    }
  });
}

void sum(const Call& call) {
  double total = 0;
  for (int64_t i = 0; i < call.size("e"); ++i) total += call.in<double>(0)[i];
  *call.out<double>(0) = total;
}

template <class T>
void zeros(const Call& call) {
  std::fill_n(call.out<T>(0), call.problem.outputs()[0].elements(), T{0});
}

constexpr Entry kOps[] = {
    {"cross_entropy_shard", cross_entropy_shard<float>, cross_entropy_shard<double>},
    {"cross_entropy_join", cross_entropy_join<float>, cross_entropy_join<double>},
    {"cross_entropy_shard_dgrad", cross_entropy_shard_dgrad<float>, cross_entropy_shard_dgrad<double>},
    {"attention_merge", attention_merge<float>, attention_merge<double>},
    {"sqnorm_chunks", sqnorm_chunks<float>, sqnorm_chunks<double>},
    {"zeros", zeros<float>, zeros<double>, zeros<int64_t>, zeros<int32_t>},
    {"sum", nullptr, sum},
};

}  // namespace

std::span<const Entry> shard_ops() { return kOps; }

}  // namespace tenon::kernels::cpu
