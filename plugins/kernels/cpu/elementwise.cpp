// Ops that compute each element by itself: those of elementwise_loops.h, add, and dropout.
#include <cmath>
#include <type_traits>

#include "op.h"

namespace tenon::kernels::cpu {
namespace {

int64_t elements(const Call& call) { return call.problem.inputs()[0].elements(); }

constexpr size_t kMaxOperands = 4, kMaxAttrs = 4;  // of an op that elementwise_loops.h has

// Its attributes, if it has any.
std::vector<double> attributes(const Problem& problem) {
  std::vector<double> numbers = problem.numbers();
  if (!numbers.empty()) numbers.resize(kMaxAttrs);
  return numbers;
}

template <class T>
void elementwise(const Call& call) {
  const ElementLoop<T>& loop = call.element_loop<T>(call.problem.kind());
  const size_t num_in = call.problem.inputs().size(), num_out = call.problem.outputs().size();
  T attrs[kMaxAttrs] = {};
  for (size_t a = 0; call.state != nullptr && a < kMaxAttrs; ++a) attrs[a] = static_cast<T>(call.state[a]);
  call.elements(elements(call), [&](int64_t i, int64_t n) {
    const T* in[kMaxOperands];
    T* out[kMaxOperands];
    for (size_t j = 0; j < num_in; ++j) in[j] = call.in<T>(j) + i;
    for (size_t k = 0; k < num_out; ++k) out[k] = call.out<T>(k) + i;
    loop.run(in, out, attrs, n);
  });
}

template <class T>
void add(const Call& call) {
  call.elements(elements(call), [&](int64_t i, int64_t n) {
    const T *x = call.in<T>(0) + i, *y = call.in<T>(1) + i;
    T* z = call.out<T>(0) + i;
    if constexpr (std::is_floating_point_v<T>) {
      call.loops<T>().add(x, y, z, n);
    } else {  // wraps around
      using U = std::make_unsigned_t<T>;
      for (int64_t j = 0; j < n; ++j) z[j] = static_cast<T>(static_cast<U>(x[j]) + static_cast<U>(y[j]));
    }
  });
}

// docs/reference/ops.md, "Dropout's random numbers".
template <class T>
void dropout(const Call& call) {
  const int64_t batch = call.size("b"), length = call.size("s"), width = call.size("e..");
  const auto *sample = call.in<int64_t>(1), *step = call.in<int64_t>(3);
  const auto* pos = call.in<int32_t>(2);
  const double p = call.problem.number("p");
  const auto key = static_cast<uint64_t>(call.problem.integer("key"));
  // u = word * 2^-32 >= p exactly where word >= ceil(p * 2^32).
  const auto threshold = static_cast<uint64_t>(std::ceil(p * 0x1p32));
  call.rows(batch * length, width, [&](int64_t row, int64_t n) {
    for (int64_t t = row; t < row + n; ++t) {
      const auto id = static_cast<uint64_t>(sample[t / length]);
      const uint64_t last = static_cast<uint64_t>(*step) + ((id >> 32 & 0xffff) << 16);
      const uint32_t counter[3] = {static_cast<uint32_t>(pos[t]), static_cast<uint32_t>(id),
                                   static_cast<uint32_t>(last)};
      call.loops<T>().dropout(call.in<T>(0) + t * width, call.out<T>(0) + t * width, width, counter, key,
                              threshold, static_cast<T>(1 / (1 - p)));
    }
  });
}

std::vector<Entry> make_ops() {
  std::vector<Entry> ops{
      {"add", add<float>, add<double>, add<int64_t>, add<int32_t>},
      {"dropout", dropout<float>, dropout<double>},
  };
  for (int64_t i = 0; i < kBaseline.f32.num_elementwise; ++i) {
    ops.push_back({.kind = kBaseline.f32.elementwise[i].kind,
                   .f32 = elementwise<float>,
                   .f64 = elementwise<double>,
                   .state = attributes});
  }
  return ops;
}

}  // namespace

std::span<const Entry> elementwise_ops() {
  static const std::vector<Entry> ops = make_ops();
  return ops;
}

}  // namespace tenon::kernels::cpu
