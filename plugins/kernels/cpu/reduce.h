// Sums over rows: fixed chunks of rows give partial sums, which are added in order.
#pragma once

#include "op.h"

namespace tenon::kernels::cpu {

struct Chunks {
  int64_t rows, count;  // rows of one chunk; number of chunks, at most 32

  explicit Chunks(int64_t total)
      : rows(std::max<int64_t>(32, (total + 31) / 32)), count((total + rows - 1) / rows) {}
};

// Bytes of the partial sums of `outputs` results of `width` elements.
inline int64_t partial_bytes(const Problem& problem, int64_t rows, int64_t width, int64_t outputs) {
  return Chunks(rows).count * width * outputs * real_bytes(problem);
}

// y (+)= sum of the partial sums, which are `stride` elements apart.
template <class T>
void combine_partials(const Call& call, const T* partials, int64_t count, int64_t stride, T* y,
                      int64_t width) {
  call.ranges(width, 1024, [&](int64_t begin, int64_t n) {
    call.loops<T>().combine(partials + begin, y + begin, count, stride, n, call.problem.accumulate());
  });
}

}  // namespace tenon::kernels::cpu
