// What parallel strategies need: ops on one shard of a vocabulary, attention over blocks of keys, and norms
// and sums that do not depend on how a gradient is cut.
#include <algorithm>
#include <cmath>
#include <limits>

#include "op.h"

namespace tenon::kernels::reference {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// The row of this shard that an index of the whole vocabulary means, or -1.
int64_t row_of(const Call& call, int32_t index) {
  const int64_t row = index - call.integer("start");
  return index >= 0 && row >= 0 && row < call.size("v") ? row : -1;
}

// y[token, h] = w[id[token] - start, h], 0 where the id is another shard's: the shards' sum is the embedding.
template <class T>
void embedding_shard(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), width = call.size("h");
  const auto* ids = call.in<int32_t>(0);
  const T* w = call.in<T>(1);
  T* y = call.out<T>(0);
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t row = row_of(call, ids[t]);
    for (int64_t h = 0; h < width; ++h) y[t * width + h] = row < 0 ? T{0} : w[row * width + h];
  }
}

template <class T>
void embedding_shard_wgrad(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), width = call.size("h"), vocabulary = call.size("v");
  const T* dy = call.in<T>(0);
  const auto* ids = call.in<int32_t>(1);
  T* dw = call.out<T>(0);
  double* sum = call.workspace<double>();
  std::fill_n(sum, vocabulary * width, 0.0);
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t row = row_of(call, ids[t]);
    for (int64_t h = 0; row >= 0 && h < width; ++h) sum[row * width + h] += dy[t * width + h];
  }
  for (int64_t i = 0; i < vocabulary * width; ++i) call.put(dw[i], sum[i]);
}

// part: log of the sum of this shard's exponentials; picked: the target's logit if it is this shard's, else
// 0.
template <class T>
void cross_entropy_shard(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), vocabulary = call.size("v");
  const T* logits = call.in<T>(0);
  const auto* targets = call.in<int32_t>(1);
  T *part = call.out<T>(0), *picked = call.out<T>(1);
  for (int64_t t = 0; t < tokens; ++t, logits += vocabulary) {
    const double top = *std::max_element(logits, logits + vocabulary);
    double sum = 0;
    for (int64_t v = 0; v < vocabulary; ++v) sum += std::exp(logits[v] - top);
    part[t] = static_cast<T>(top + std::log(sum));
    const int64_t row = row_of(call, targets[t]);
    picked[t] = row < 0 ? T{0} : logits[row];
  }
}

// Of all shards' parts: lse = log sum exp(part), loss = sum of lse - picked over tokens with a target.
template <class T>
void cross_entropy_join(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), shards = call.size("n");
  const T *part = call.in<T>(0), *picked = call.in<T>(1);
  const auto* targets = call.in<int32_t>(2);
  T* lse = call.out<T>(2);
  double loss = 0;
  int64_t count = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    double top = part[t], sum = 0;
    for (int64_t n = 1; n < shards; ++n) top = std::max<double>(top, part[n * tokens + t]);
    for (int64_t n = 0; n < shards; ++n) sum += std::exp(part[n * tokens + t] - top);
    lse[t] = static_cast<T>(top + std::log(sum));
    if (targets[t] < 0) continue;
    loss += top + std::log(sum) - picked[t];
    ++count;
  }
  *call.out<double>(0) = loss;
  *call.out<int64_t>(1) = count;
}

template <class T>
void cross_entropy_shard_dgrad(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), vocabulary = call.size("v");
  const T *logits = call.in<T>(0), *lse = call.in<T>(2);
  const auto* targets = call.in<int32_t>(1);
  T* dlogits = call.out<T>(0);
  for (int64_t t = 0; t < tokens; ++t, logits += vocabulary, dlogits += vocabulary) {
    const int64_t row = row_of(call, targets[t]);
    for (int64_t v = 0; v < vocabulary; ++v) {
      const double softmax = std::exp(static_cast<double>(logits[v]) - lse[t]);
      dlogits[v] = static_cast<T>(targets[t] < 0 ? 0 : softmax - (v == row ? 1 : 0));
    }
  }
}

// Attention over two sets of keys from attention over each: o weighs the two by their sums of exponentials.
// Without accumulation: a copy.
template <class T>
void attention_merge(const Call& call) {
  const int64_t batch = call.size("b"), queries = call.size("s"), groups = call.size("g"),
                reps = call.size("r"), width = call.size("d");
  const T *part = call.in<T>(0), *part_lse = call.in<T>(1);
  T *o = call.out<T>(0), *lse = call.out<T>(1);
  for (int64_t row = 0; row < batch * queries * groups * reps; ++row) {
    const int64_t head = row % (groups * reps), s = row / (groups * reps) % queries,
                  b = row / (groups * reps * queries);
    const int64_t at = (b * groups * reps + head) * queries + s;
    const double mine = call.problem.accumulate() ? lse[at] : kNothing, other = part_lse[at];
    const double top = std::max(mine, other);
    const double sum =
        top == kNothing ? kNothing : top + std::log(std::exp(mine - top) + std::exp(other - top));
    const double keep = mine == kNothing ? 0 : std::exp(mine - sum),
                 take = other == kNothing ? 0 : std::exp(other - sum);
    for (int64_t d = row * width; d < (row + 1) * width; ++d) {
      o[d] = static_cast<T>((keep == 0 ? 0 : keep * o[d]) + (take == 0 ? 0 : take * part[d]));
    }
    lse[at] = static_cast<T>(sum);
  }
}

// y[c] = sum of squares of elements [c * chunk, (c + 1) * chunk)
template <class T>
void sqnorm_chunks(const Call& call) {
  const int64_t n = call.size("e"), chunk = call.integer("chunk");
  const T* x = call.in<T>(0);
  double* y = call.out<double>(0);
  for (int64_t c = 0; c < call.size("c"); ++c) {
    y[c] = 0;
    for (int64_t i = c * chunk; i < std::min(n, (c + 1) * chunk); ++i)
      y[c] += static_cast<double>(x[i]) * x[i];
  }
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
    {"embedding_shard", embedding_shard<float>, embedding_shard<double>},
    {"embedding_shard_wgrad", embedding_shard_wgrad<float>, embedding_shard_wgrad<double>, nullptr, nullptr,
     [](const Problem& p) { return 8 * p.size("v") * p.size("h"); }},
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

}  // namespace tenon::kernels::reference
