// slice and concat: copies of runs of bytes.
#include <cstring>

#include "op.h"

namespace tenon::kernels::cpu {
namespace {

// A tensor seen as [outer, size], in bytes, cut in front of `dim`.
struct View {
  int64_t outer = 1, inner;  // inner: bytes of one step along dim
  int64_t size;              // bytes of all of them

  View(const Shape& shape, int64_t dim) : inner(dtype_bytes(shape.dtype)) {
    const auto d = static_cast<size_t>(dim);
    for (size_t i = 0; i < shape.dims.size(); ++i) {
      if (i < d) outer *= shape.dims[i];
      if (i > d) inner *= shape.dims[i];
    }
    size = shape.dims[d] * inner;
  }
};

void copy_runs(const Call& call, const char* from, int64_t from_step, char* to, int64_t to_step,
               int64_t outer, int64_t bytes) {
  if (bytes == 0) return;
  call.rows(outer, bytes / 4, [&](int64_t first, int64_t n) {
    for (int64_t o = first; o < first + n; ++o) {
      std::memcpy(to + o * to_step, from + o * from_step, static_cast<size_t>(bytes));
    }
  });
}

void slice(const Call& call) {
  const int64_t dim = call.problem.integer("dim");
  const View from(call.problem.inputs()[0], dim), to(call.problem.outputs()[0], dim);
  copy_runs(call, call.in<char>(0) + call.problem.integer("start") * from.inner, from.size, call.out<char>(0),
            to.size, from.outer, to.size);
}

void concat(const Call& call) {
  const int64_t dim = call.problem.integer("dim");
  const View to(call.problem.outputs()[0], dim);
  char* y = call.out<char>(0);
  for (size_t k = 0; k < call.problem.inputs().size(); ++k) {
    const View from(call.problem.inputs()[k], dim);
    copy_runs(call, call.in<char>(k), from.size, y, to.size, from.outer, from.size);
    y += from.size;
  }
}

constexpr Entry kOps[] = {
    {"slice", slice, slice, slice, slice},
    {"concat", concat, concat, concat, concat},
};

}  // namespace

std::span<const Entry> shape_ops() { return kOps; }

}  // namespace tenon::kernels::cpu
