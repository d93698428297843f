#include "tree.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "tenon/comm.h"

namespace tenon::comm {

namespace {

constexpr size_t kBlockBytes = 4096;
constexpr int kMaxLevels = 20;  // groups of up to 2^20 members

struct Sum {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};

// !(b <= a) is true for a NaN in b; a NaN in a is kept by the second test.
struct Max {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return (a != a || b <= a) ? a : b;
    return b <= a ? a : b;
  }
};

struct Min {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return (a != a || a <= b) ? a : b;
    return a <= b ? a : b;
  }
};

template <class T, class F>
class Tree {
 public:
  static constexpr size_t kBlock = kBlockBytes / sizeof(T);

  static void reduce(const void* const* sources, int n, uint64_t count, void* const* outs, int num_outs) {
    alignas(64) T scratch[static_cast<size_t>(kMaxLevels) * kBlock];
    for (uint64_t begin = 0; begin < count; begin += kBlock) {
      const size_t size = static_cast<size_t>(std::min<uint64_t>(kBlock, count - begin));
      const T* result = block(sources, 0, n, begin, size, scratch);
      for (int k = 0; k < num_outs; ++k) {
        T* out = static_cast<T*>(outs[k]) + begin;
        if (out != result) std::memcpy(out, result, size * sizeof(T));
      }
    }
  }

 private:
  // The reduced block: in scratch[0, size), or the source itself for one member.
  static const T* block(const void* const* sources, int lo, int n, uint64_t begin, size_t size, T* scratch) {
    if (n == 1) return static_cast<const T*>(sources[lo]) + begin;
    const int p = static_cast<int>(std::bit_floor(static_cast<unsigned>(n - 1)));
    const T* left = block(sources, lo, p, begin, size, scratch);
    const T* right = block(sources, lo + p, n - p, begin, size, scratch + kBlock);
    for (size_t i = 0; i < size; ++i) scratch[i] = F::of(left[i], right[i]);
    return scratch;
  }
};

template <class F>
Reducer reducer_of(uint32_t dtype) {
  switch (dtype) {
    case TENON_F64: return Tree<double, F>::reduce;
    case TENON_F32: return Tree<float, F>::reduce;
    case TENON_I64: return Tree<int64_t, F>::reduce;
    case TENON_I32: return Tree<int32_t, F>::reduce;
    case TENON_U8: return std::is_same_v<F, Sum> ? nullptr : Tree<uint8_t, F>::reduce;
    default: return nullptr;
  }
}

}  // namespace

Reducer find_reducer(uint32_t reduce, uint32_t dtype) {
  switch (reduce) {
    case TENON_SUM: return reducer_of<Sum>(dtype);
    case TENON_MAX: return reducer_of<Max>(dtype);
    case TENON_MIN: return reducer_of<Min>(dtype);
    default: return nullptr;
  }
}

}  // namespace tenon::comm
