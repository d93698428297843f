// Tensors on virtual ranks: how a global tensor is cut by a placement, put together again, and moved by
// collectives. Everything is in plain memory of one process, slow and obvious.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "graph/placement.h"

namespace tenon::test {

using Random = std::mt19937_64;

// Uniform in [low, high): our own conversion, so that the numbers are those of every C++ library.
inline double uniform(Random& random, double low = -1, double high = 1) {
  return low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
}
inline int64_t below(Random& random, int64_t n) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
}

// A dense row-major tensor of f64, f32, i64 or i32.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Dtype dtype, std::vector<int64_t> dims) : dtype_(dtype), dims_(std::move(dims)) {
    for (int64_t n : dims_) size_ *= n;
    bytes_.resize(static_cast<size_t>(size_ * size_of(dtype_)));
  }
  Dtype dtype() const { return dtype_; }
  const std::vector<int64_t>& dims() const { return dims_; }
  int64_t size() const { return size_; }
  void* data() { return bytes_.data(); }
  const void* data() const { return bytes_.data(); }
  bool is_real() const { return dtype_ == Dtype::f64 || dtype_ == Dtype::f32; }

  double get(int64_t i) const {
    switch (dtype_) {
      case Dtype::f64: return load<double>(i);
      case Dtype::f32: return load<float>(i);
      case Dtype::i64: return static_cast<double>(load<int64_t>(i));
      case Dtype::i32: return load<int32_t>(i);
      default: throw std::logic_error("no such tensors in tests");
    }
  }
  void set(int64_t i, double x) {
    switch (dtype_) {
      case Dtype::f64: return store(i, x);
      case Dtype::f32: return store(i, static_cast<float>(x));
      case Dtype::i64: return store(i, static_cast<int64_t>(x));
      case Dtype::i32: return store(i, static_cast<int32_t>(x));
      default: throw std::logic_error("no such tensors in tests");
    }
  }

 private:
  template <class T>
  T load(int64_t i) const {
    T out;
    std::memcpy(&out, bytes_.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return out;
  }
  template <class T>
  void store(int64_t i, T x) {
    std::memcpy(bytes_.data() + i * static_cast<int64_t>(sizeof(T)), &x, sizeof(T));
  }

  Dtype dtype_ = Dtype::f64;
  std::vector<int64_t> dims_;
  int64_t size_ = 1;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(8);
};

inline std::vector<int64_t> sizes(const Dims& dims) {
  std::vector<int64_t> out;
  for (const Dim& dim : dims) out.push_back(dim.size);
  return out;
}

inline Tensor random_real(Random& random, const std::vector<int64_t>& dims, Dtype dtype = Dtype::f64,
                          double low = -1, double high = 1) {
  Tensor out(dtype, dims);
  for (int64_t i = 0; i < out.size(); ++i) out.set(i, uniform(random, low, high));
  return out;
}

// Largest difference relative to the largest element of `expected`; infinity where shapes differ or a
// number is not finite.
inline double relative_error(const Tensor& got, const Tensor& expected) {
  if (got.dims() != expected.dims() || got.dtype() != expected.dtype()) return INFINITY;
  double error = 0, scale = 1e-300;
  for (int64_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(got.get(i) - expected.get(i));
    if (!std::isfinite(difference)) return INFINITY;
    error = std::max(error, difference);
    scale = std::max(scale, std::abs(expected.get(i)));
  }
  return error / scale;
}

// Visits the elements of the box [start, start + box.dims) of a tensor with dims `outer`:
// visit(index in outer, index in box).
template <class Visit>
void for_each_in_box(const std::vector<int64_t>& outer, const std::vector<int64_t>& start,
                     const std::vector<int64_t>& box, Visit&& visit) {
  int64_t total = 1;
  for (int64_t n : box) total *= n;
  for (int64_t i = 0; i < total; ++i) {
    int64_t rest = i, at = 0, stride = 1;
    for (size_t d = box.size(); d-- > 0;) {
      at += (start[d] + rest % box[d]) * stride;
      rest /= box[d];
      stride *= outer[d];
    }
    visit(at, i);
  }
}

inline Tensor take_box(const Tensor& outer, const std::vector<int64_t>& start,
                       const std::vector<int64_t>& box) {
  Tensor out(outer.dtype(), box);
  for_each_in_box(outer.dims(), start, box, [&](int64_t from, int64_t to) { out.set(to, outer.get(from)); });
  return out;
}

inline void add_box(Tensor& outer, const std::vector<int64_t>& start, const Tensor& box) {
  for_each_in_box(outer.dims(), start, box.dims(),
                  [&](int64_t to, int64_t from) { outer.set(to, outer.get(to) + box.get(from)); });
}

inline Tensor sum_of(const std::vector<const Tensor*>& tensors) {
  Tensor out = *tensors[0];
  for (size_t k = 1; k < tensors.size(); ++k) {
    for (int64_t i = 0; i < out.size(); ++i) out.set(i, out.get(i) + tensors[k]->get(i));
  }
  return out;
}

// Part `part` of `parts` equal parts along one dim.
inline Tensor chunk(const Tensor& whole, size_t dim, int64_t part, int64_t parts) {
  std::vector<int64_t> start(whole.dims().size()), box = whole.dims();
  if (box[dim] % parts != 0) throw std::logic_error("a chunk that does not divide");
  box[dim] /= parts;
  start[dim] = part * box[dim];
  return take_box(whole, start, box);
}

inline Tensor concatenate(const std::vector<Tensor>& parts, size_t dim) {
  std::vector<int64_t> dims = parts[0].dims();
  dims[dim] = 0;
  for (const Tensor& part : parts) dims[dim] += part.dims()[dim];
  Tensor out(parts[0].dtype(), dims);
  std::vector<int64_t> start(dims.size());
  for (const Tensor& part : parts) {
    add_box(out, start, part);
    start[dim] += part.dims()[dim];
  }
  return out;
}

// Where a rank's box starts in the global tensor.
inline std::vector<int64_t> box_start(const Placement& placement, const Mesh& mesh, int64_t rank,
                                      const std::vector<int64_t>& box) {
  const std::vector<int64_t> coordinate = mesh.coordinate(rank);
  std::vector<int64_t> start;
  for (size_t d = 0; d < placement.dims.size(); ++d) {
    int64_t part = 0;
    for (AxisId axis : placement.dims[d]) part = part * mesh.axes[axis].size + coordinate[axis];
    start.push_back(part * box[d]);
  }
  return start;
}

inline std::vector<int64_t> box_of(const Placement& placement, const Mesh& mesh, std::vector<int64_t> dims) {
  for (size_t d = 0; d < dims.size(); ++d) {
    const int64_t parts = mesh.size(placement.dims[d]);
    if (dims[d] % parts != 0) throw std::logic_error("a sharded dim that does not divide");
    dims[d] /= parts;
  }
  return dims;
}

// Random tensors whose sum is `value`.
inline std::vector<Tensor> random_addends(const Tensor& value, int64_t count, Random& random) {
  std::vector<Tensor> out(static_cast<size_t>(count), Tensor(value.dtype(), value.dims()));
  for (int64_t i = 0; i < value.size(); ++i) {
    double rest = value.get(i);
    for (size_t k = 1; k < out.size(); ++k) {
      const double addend = value.is_real() ? uniform(random) : static_cast<double>(below(random, 100));
      out[k].set(i, addend);
      rest -= addend;
    }
    out[0].set(i, rest);
  }
  return out;
}

// The local tensors of all ranks. Over the axes of a partial the ranks get random addends.
inline std::vector<Tensor> split(const Tensor& global, const Placement& placement, const Mesh& mesh,
                                 Random& random) {
  std::vector<AxisId> summed;
  for (const Partial& partial : placement.partials) summed.push_back(partial.axis);
  const std::vector<Tensor> addends = random_addends(global, mesh.size(summed), random);
  const std::vector<int64_t> box = box_of(placement, mesh, global.dims());
  std::vector<Tensor> out;
  for (int64_t rank = 0; rank < mesh.world(); ++rank) {
    const std::vector<int64_t> coordinate = mesh.coordinate(rank);
    size_t addend = 0;
    for (AxisId axis : summed) {
      addend = addend * static_cast<size_t>(mesh.axes[axis].size) + static_cast<size_t>(coordinate[axis]);
    }
    out.push_back(take_box(addends[addend], box_start(placement, mesh, rank, box), box));
  }
  return out;
}

// The global tensor that local tensors of a placement stand for: shards side by side, partials summed.
// Throws where ranks that should hold the same differ by more than `tolerance` (relative).
inline Tensor assemble(const std::vector<Tensor>& locals, const Placement& placement, const Mesh& mesh,
                       const std::vector<int64_t>& dims, double tolerance = 0) {
  const std::vector<int64_t> box = box_of(placement, mesh, dims);
  Tensor out(locals[0].dtype(), dims);
  for (int64_t rank = 0; rank < mesh.world(); ++rank) {
    const Tensor& local = locals[static_cast<size_t>(rank)];
    if (local.dims() != box) throw std::runtime_error("rank " + std::to_string(rank) + " has a wrong shape");
    std::vector<int64_t> coordinate = mesh.coordinate(rank);
    for (AxisId axis = 0; axis < mesh.axes.size(); ++axis) {
      if (!placement.sharded_dim(axis) && !placement.is_partial(axis)) coordinate[axis] = 0;
    }
    const int64_t first = mesh.rank(coordinate);
    if (first == rank) {
      add_box(out, box_start(placement, mesh, rank, box), local);
    } else if (!(relative_error(local, locals[static_cast<size_t>(first)]) <= tolerance)) {
      throw std::runtime_error("ranks " + std::to_string(first) + " and " + std::to_string(rank) +
                               " should hold the same and do not");
    }
  }
  return out;
}

// What a collective over one axis makes of the ranks' tensors. The dims that it works along are read
// from the placements; the order of parts is the order of coordinates on the axis.
inline std::vector<Tensor> simulate(const std::string& kind, AxisId axis, const Placement& from,
                                    const Placement& to, const Mesh& mesh,
                                    const std::vector<Tensor>& locals) {
  std::vector<Tensor> out;
  const int64_t parts = mesh.axes[axis].size;
  for (int64_t rank = 0; rank < mesh.world(); ++rank) {
    const int64_t me = mesh.coordinate(rank)[axis];
    std::vector<const Tensor*> members;
    for (int32_t member : mesh.group(rank, {axis})) members.push_back(&locals[static_cast<size_t>(member)]);
    std::vector<Tensor> received;
    if (kind == "all_reduce") {
      out.push_back(sum_of(members));
    } else if (kind == "reduce_scatter") {
      out.push_back(chunk(sum_of(members), to.sharded_dim(axis).value(), me, parts));
    } else if (kind == "slice") {
      out.push_back(chunk(locals[static_cast<size_t>(rank)], to.sharded_dim(axis).value(), me, parts));
    } else if (kind == "all_gather") {
      for (const Tensor* member : members) received.push_back(*member);
      out.push_back(concatenate(received, from.sharded_dim(axis).value()));
    } else if (kind == "all_to_all") {
      for (const Tensor* member : members) {
        received.push_back(chunk(*member, to.sharded_dim(axis).value(), me, parts));
      }
      out.push_back(concatenate(received, from.sharded_dim(axis).value()));
    } else {
      throw std::logic_error("no collective: " + kind);
    }
  }
  return out;
}

}  // namespace tenon::test
