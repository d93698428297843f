// slice and concat.
#include "op.h"

namespace tenon::kernels::reference {
namespace {

// A tensor seen as [outer, dim, inner].
struct View {
  int64_t outer = 1, size = 0, inner = 1;

  View(const Shape& shape, int64_t dim) : size(shape.dims[static_cast<size_t>(dim)]) {
    for (int64_t i = 0; i < static_cast<int64_t>(shape.dims.size()); ++i) {
      if (i < dim) outer *= shape.dims[static_cast<size_t>(i)];
      if (i > dim) inner *= shape.dims[static_cast<size_t>(i)];
    }
  }
};

template <class T>
void slice(const Call& call) {
  const View from(call.problem.inputs()[0], call.integer("dim"));
  const int64_t start = call.integer("start"), size = call.integer("size");
  const T* x = call.in<T>(0);
  T* y = call.out<T>(0);
  for (int64_t o = 0; o < from.outer; ++o) {
    for (int64_t s = 0; s < size; ++s) {
      for (int64_t i = 0; i < from.inner; ++i) {
        y[(o * size + s) * from.inner + i] = x[(o * from.size + start + s) * from.inner + i];
      }
    }
  }
}

template <class T>
void concat(const Call& call) {
  const View to(call.problem.outputs()[0], call.integer("dim"));
  T* y = call.out<T>(0);
  int64_t start = 0;
  for (size_t k = 0; k < call.problem.inputs().size(); ++k) {
    const View from(call.problem.inputs()[k], call.integer("dim"));
    const T* x = call.in<T>(k);
    for (int64_t o = 0; o < from.outer; ++o) {
      for (int64_t s = 0; s < from.size; ++s) {
        for (int64_t i = 0; i < from.inner; ++i) {
          y[(o * to.size + start + s) * to.inner + i] = x[(o * from.size + s) * from.inner + i];
        }
      }
    }
    start += from.size;
  }
}

constexpr Entry kOps[] = {
    {"slice", slice<float>, slice<double>, slice<int64_t>, slice<int32_t>},
    {"concat", concat<float>, concat<double>, concat<int64_t>, concat<int32_t>},
};

}  // namespace

std::span<const Entry> shape_ops() { return kOps; }

}  // namespace tenon::kernels::reference
