// tenon_sdk/comm/reduce.hpp - reductions in the fixed binary tree of tenon/comm.h:
//   tree(lo, n) = n == 1 ? x[lo] : tree(lo, p) + tree(lo + p, n - p),  p = largest power of two below n
// element by element, so the bits depend on the members' values and their number alone: not on how an array
// is cut, nor on the instruction set. max and min give NaN when any value is NaN. Integer sums wrap. bf16 is
// reduced in f32, all of the tree, and rounded once (to nearest even). Header-only.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tenon/comm.h"
#include "tenon_sdk/isa.hpp"

namespace tenon::comm {

// outs[k][0, count) = tree over sources[0..n)[0, count), for every k. An out may be the same memory as a
// source, at the same place. Pointers are aligned to the element. n up to 2^20.
using Reducer = void (*)(const void* const* sources, int n, uint64_t count, void* const* outs, int num_outs);

namespace detail {

struct Bf16 {
  uint16_t bits;
};

// The operations are written once, for elements (X is T) and for vectors of T.
struct Sum {
  template <class T, class X>
  [[gnu::always_inline]] static void of(const X& a, const X& b, X& out) {
    out = a + b;
  }
};

// !(b <= a) is true for a NaN in b; a NaN in a is kept by the second test.
struct Max {
  template <class T, class X>
  [[gnu::always_inline]] static void of(const X& a, const X& b, X& out) {
    if constexpr (std::is_floating_point_v<T>) {
      out = ((a != a) | (b <= a)) ? a : b;
    } else {
      out = (b <= a) ? a : b;
    }
  }
};

struct Min {
  template <class T, class X>
  [[gnu::always_inline]] static void of(const X& a, const X& b, X& out) {
    if constexpr (std::is_floating_point_v<T>) {
      out = ((a != a) | (a <= b)) ? a : b;
    } else {
      out = (a <= b) ? a : b;
    }
  }
};

// outs[k][i] = a[i] op b[i], or of four terms (a[i] op b[i]) op (c[i] op d[i]): one pass over many arrays
// keeps more of them on their way from memory than several passes over two.
template <class T, class F, int kTerms>
struct Combine {
  static_assert(kTerms == 2 || kTerms == 4);
  typedef T Vector __attribute__((vector_size(64)));
  typedef T Stored __attribute__((vector_size(64), aligned(1), may_alias));  // where it lies in memory
  static constexpr uint64_t kLanes = 64 / sizeof(T);
  const T* const* terms;
  T* const* outs;
  int num_outs;

  [[gnu::always_inline]] void apply(uint64_t count) const {
    switch (num_outs) {
      case 1: return to<1>(count);
      case 2: return to<2>(count);
      case 4: return to<4>(count);
      default: return to<0>(count);
    }
  }

 private:
  // Known: the number of outs, 0 if it is not.
  template <int Known>
  [[gnu::always_inline]] void to(uint64_t count) const {
    const T* from[kTerms];
    T* known[Known > 0 ? Known : 1];  // copies, which no store can change
    for (int k = 0; k < kTerms; ++k) from[k] = terms[k];
    for (int k = 0; k < Known; ++k) known[k] = outs[k];
    T* const* const into = Known > 0 ? known : outs;
    const int num = Known > 0 ? Known : num_outs;
    uint64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      Vector term[kTerms], value;
#pragma GCC unroll 4
      for (int k = 0; k < kTerms; ++k) term[k] = *reinterpret_cast<const Stored*>(from[k] + i);
      fold(term, value);
#pragma GCC unroll 4
      for (int k = 0; k < num; ++k) *reinterpret_cast<Stored*>(into[k] + i) = value;
    }
    for (; i < count; ++i) {
      T term[kTerms], value;
      for (int k = 0; k < kTerms; ++k) term[k] = from[k][i];
      fold(term, value);
      for (int k = 0; k < num; ++k) into[k][i] = value;
    }
  }

  template <class X>
  [[gnu::always_inline]] static void fold(const X (&term)[kTerms], X& out) {
    if constexpr (kTerms == 4) {
      X left, right;
      F::template of<T>(term[0], term[1], left);
      F::template of<T>(term[2], term[3], right);
      F::template of<T>(left, right, out);
    } else {
      F::template of<T>(term[0], term[1], out);
    }
  }
};

// bf16 is the upper half of f32.
struct Widen {
  const Bf16* from;
  float* to;
  [[gnu::always_inline]] void apply(uint64_t count) const {
    typedef uint16_t Halves __attribute__((vector_size(32), aligned(1), may_alias));
    typedef uint32_t Words __attribute__((vector_size(64), aligned(1), may_alias));
    uint64_t i = 0;
    for (; i + 16 <= count; i += 16) {
      const Words wide = __builtin_convertvector(*reinterpret_cast<const Halves*>(from + i), Words);
      *reinterpret_cast<Words*>(to + i) = wide << 16;
    }
    for (; i < count; ++i) to[i] = std::bit_cast<float>(uint32_t{from[i].bits} << 16);
  }
};

// To nearest even; a NaN stays one.
struct Narrow {
  const float* from;
  Bf16* to;
  [[gnu::always_inline]] void apply(uint64_t count) const {
    typedef uint16_t Halves __attribute__((vector_size(32), aligned(1), may_alias));
    typedef uint32_t Words __attribute__((vector_size(64), aligned(1), may_alias));
    typedef uint32_t Vector __attribute__((vector_size(64)));
    uint64_t i = 0;
    for (; i + 16 <= count; i += 16) {
      const Vector in = *reinterpret_cast<const Words*>(from + i);
      Vector out;
      round(in, out);
      *reinterpret_cast<Halves*>(to + i) = __builtin_convertvector(out, Halves);
    }
    for (; i < count; ++i) {
      uint32_t out;
      round(std::bit_cast<uint32_t>(from[i]), out);
      to[i].bits = static_cast<uint16_t>(out);
    }
  }

 private:
  template <class X>
  [[gnu::always_inline]] static void round(const X& bits, X& out) {
    const X rounded = (bits + ((bits >> 16 & 1) + 0x7fff)) >> 16;
    const X quiet = (bits >> 16) | 0x40;
    out = ((bits & 0x7fffffff) > 0x7f800000) ? quiet : rounded;
  }
};

// Stored is what memory holds, Value what is computed with.
template <class Stored, class Value, class F, sdk::Isa kIsa>
class Tree {
  static constexpr size_t kBlock = 4096 / sizeof(Value);  // stays in the first cache at every level
  static constexpr int kMaxLevels = 21;
  static constexpr bool kConverts = !std::is_same_v<Stored, Value>;

 public:
  static void reduce(const void* const* sources, int n, uint64_t count, void* const* outs, int num_outs) {
    alignas(64) Value scratch[static_cast<size_t>(kMaxLevels) * kBlock];
    for (uint64_t begin = 0; begin < count; begin += kBlock) {
      const auto size = static_cast<size_t>(std::min<uint64_t>(kBlock, count - begin));
      if (n == 1) {
        copy(static_cast<const Stored*>(sources[0]) + begin, begin, size, outs, num_outs);
        continue;
      }
      root({sources, begin, size}, n, outs, num_outs, scratch);
    }
  }

 private:
  struct Block {
    const void* const* sources;
    uint64_t begin;
    size_t size;
  };

  static void copy(const Stored* from, uint64_t begin, size_t size, void* const* outs, int num_outs) {
    for (int k = 0; k < num_outs; ++k) {
      Stored* out = static_cast<Stored*>(outs[k]) + begin;
      if (out != from) std::memcpy(out, from, size * sizeof(Stored));
    }
  }

  static int left_of(int n) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(n - 1))); }

  // The last node writes the results, which may be sources: all else has been read by then.
  static void root(const Block& block, int n, void* const* outs, int num_outs, Value* scratch) {
    constexpr int kAtOnce = 8;
    if constexpr (kConverts) {
      node(block, 0, n, scratch);
      for (int k = 0; k < num_outs; ++k)
        sdk::run_on(kIsa, Narrow{scratch, static_cast<Stored*>(outs[k]) + block.begin}, block.size);
    } else if (num_outs <= kAtOnce) {
      Value* to[kAtOnce];
      for (int k = 0; k < num_outs; ++k) to[k] = static_cast<Value*>(outs[k]) + block.begin;
      join(block, 0, n, scratch, to, num_outs);
    } else {
      node(block, 0, n, scratch);
      copy(scratch, block.begin, block.size, outs, num_outs);
    }
  }

  // The block reduced over members [lo, lo + n): in scratch, or the source itself.
  static const Value* node(const Block& block, int lo, int n, Value* scratch) {
    if (n == 1) return leaf(block, lo, scratch);
    join(block, lo, n, scratch, &scratch, 1);
    return scratch;
  }

  // Of at least two members, to `outs`.
  static void join(const Block& block, int lo, int n, Value* scratch, Value* const* outs, int num_outs) {
    if constexpr (!kConverts) {  // where leaves need no scratch
      if (n == 4) {
        const Value* terms[4];
        for (int k = 0; k < 4; ++k) terms[k] = leaf(block, lo + k, scratch);
        return sdk::run_on(kIsa, Combine<Value, F, 4>{terms, outs, num_outs}, block.size);
      }
    }
    const int p = left_of(n);
    const Value* left = node(block, lo, p, scratch);
    const Value* right = node(block, lo + p, n - p, scratch + kBlock);
    const Value* terms[2] = {left, right};
    sdk::run_on(kIsa, Combine<Value, F, 2>{terms, outs, num_outs}, block.size);
  }

  static const Value* leaf(const Block& block, int member, Value* scratch) {
    const Stored* source = static_cast<const Stored*>(block.sources[member]) + block.begin;
    if constexpr (kConverts) {
      sdk::run_on(kIsa, Widen{source, scratch}, block.size);
      return scratch;
    } else {
      return source;
    }
  }
};

template <class Stored, class Value, class F>
Reducer for_isa(sdk::Isa isa) {
  switch (isa) {
    case sdk::Isa::kAvx512: return Tree<Stored, Value, F, sdk::Isa::kAvx512>::reduce;
    case sdk::Isa::kAvx2: return Tree<Stored, Value, F, sdk::Isa::kAvx2>::reduce;
    default: return Tree<Stored, Value, F, sdk::Isa::kBaseline>::reduce;
  }
}

template <class F>
Reducer for_dtype(uint32_t dtype, sdk::Isa isa) {
  constexpr bool kSums = std::is_same_v<F, Sum>;  // unsigned sums have the same bits, and wrap
  using I64 = std::conditional_t<kSums, uint64_t, int64_t>;
  using I32 = std::conditional_t<kSums, uint32_t, int32_t>;
  switch (dtype) {
    case TENON_F64: return for_isa<double, double, F>(isa);
    case TENON_F32: return for_isa<float, float, F>(isa);
    case TENON_BF16: return for_isa<Bf16, float, F>(isa);
    case TENON_I64: return for_isa<I64, I64, F>(isa);
    case TENON_I32: return for_isa<I32, I32, F>(isa);
    case TENON_U8: return kSums ? nullptr : for_isa<uint8_t, uint8_t, F>(isa);
    default: return nullptr;
  }
}

}  // namespace detail

// NULL: not offered. u8 has no sum (it would wrap at 255), f16 nothing.
inline Reducer find_reducer(uint32_t reduce, uint32_t dtype, sdk::Isa isa = sdk::best_isa()) {
  switch (reduce) {
    case TENON_SUM: return detail::for_dtype<detail::Sum>(dtype, isa);
    case TENON_MAX: return detail::for_dtype<detail::Max>(dtype, isa);
    case TENON_MIN: return detail::for_dtype<detail::Min>(dtype, isa);
    default: return nullptr;
  }
}

}  // namespace tenon::comm
