// embedding and its gradient, of a whole table or of a shard.
#include "shard.h"

namespace tenon::kernels::cpu {
namespace {

template <class T>
void gather(const Call& call, const Shard& shard) {
  const int64_t width = call.size("h");
  const auto* ids = call.in<int32_t>(0);
  call.rows(call.size("b") * call.size("s"), width, [&](int64_t first, int64_t n) {
    for (int64_t t = first; t < first + n; ++t) {
      T* y = call.out<T>(0) + t * width;
      const int64_t row = shard.row(ids[t]);
      if (row < 0)
        std::fill_n(y, width, T{0});
      else
        std::copy_n(call.in<T>(1) + row * width, width, y);
    }
  });
}

// Parts are stripes of columns: each adds all tokens in order, whatever their ids are.
template <class T>
void scatter(const Call& call, const Shard& shard) {
  constexpr int64_t kStripe = 32;
  const int64_t tokens = call.size("b") * call.size("s"), width = call.size("h");
  const T* dy = call.in<T>(0);
  const auto* ids = call.in<int32_t>(1);
  T* dw = call.out<T>(0);
  if (!call.problem.accumulate()) {
    call.elements(shard.rows * width, [&](int64_t begin, int64_t n) { std::fill_n(dw + begin, n, T{0}); });
  }
  call.ranges(width, kStripe, [&](int64_t begin, int64_t n) {
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t row = shard.row(ids[t]);
      if (row < 0) continue;
      const T* from = dy + t * width + begin;
      T* to = dw + row * width + begin;
      for (int64_t i = 0; i < n; ++i) to[i] += from[i];
    }
  });
}

void check_ids(const Call& call, size_t input) {
  check_indices(call.problem.kind(), "ids", call.in<int32_t>(input), call.size("b") * call.size("s"),
                call.size("v"), Padding::refused);
}

template <class T>
void embedding(const Call& call) {
  check_ids(call, 0);
  gather<T>(call, Shard::whole(call));
}

template <class T>
void embedding_wgrad(const Call& call) {
  check_ids(call, 1);
  scatter<T>(call, Shard::whole(call));
}

template <class T>
void embedding_shard(const Call& call) {
  gather<T>(call, Shard::of(call));
}

template <class T>
void embedding_shard_wgrad(const Call& call) {
  scatter<T>(call, Shard::of(call));
}

constexpr Entry kOps[] = {
    {"embedding", embedding<float>, embedding<double>},
    {"embedding_wgrad", embedding_wgrad<float>, embedding_wgrad<double>},
    {"embedding_shard", embedding_shard<float>, embedding_shard<double>},
    {"embedding_shard_wgrad", embedding_shard_wgrad<float>, embedding_shard_wgrad<double>},
};

}  // namespace

std::span<const Entry> embedding_ops() { return kOps; }

}  // namespace tenon::kernels::cpu
