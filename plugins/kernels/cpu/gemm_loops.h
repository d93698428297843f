// Matrix products in cache: C[m,n] (+)= A[m,k] B[k,n]. Each element of C sums over k in order, so its bits do
// not depend on how m and n are cut.
#pragma once

#include "loops.h"
#include "simd.h"

namespace tenon::kernels::cpu::TENON_ISA {
namespace {

// How A lies: row_major a[i * lda + p], or panel a[p * lda + i].
enum class Order { row_major, panel };

// Rows of C, and vectors in each, that the micro-kernel holds in registers.
#if TENON_VECTOR_BYTES == 64
constexpr int kRows = 8;
#else
constexpr int kRows = 4;
#endif
constexpr int kCols = 3;

template <class T>
struct Gemm {
  using V = Vec<T>;
  static constexpr int64_t kWidth = kCols * kLanes<T>;  // columns of a panel of B
  static_assert(kMaxRows % kRows == 0 && kMaxCols % kWidth == 0);

  struct Block {
    int64_t k;
    const T* a;
    int64_t lda;
    const T* b;
    int64_t ldb;
    T* c;
    int64_t ldc;
    bool add;
  };

  // M rows times N vectors of C, held in registers.
  template <int M, int N, Order order>
  static TENON_INLINE void micro(const Block& g) {
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) __builtin_prefetch(g.c + i * g.ldc + j * kLanes<T>, 1);
    }
    V sum[M][N] = {};
    const T *a = g.a, *b = g.b;
#pragma GCC unroll 4
    for (int64_t p = 0; p < g.k; ++p) {
      V row[N];
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) row[j] = load(b + j * kLanes<T>);
#pragma GCC unroll 8
      for (int i = 0; i < M; ++i) {
        const T x = order == Order::panel ? a[i] : a[i * g.lda];
#pragma GCC unroll 8
        for (int j = 0; j < N; ++j) sum[i][j] += x * row[j];
      }
      a += order == Order::panel ? g.lda : 1;
      b += g.ldb;
    }
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) {
        T* c = g.c + i * g.ldc + j * kLanes<T>;
        store<T>(c, g.add ? load(c) + sum[i][j] : sum[i][j]);
      }
    }
  }

  // m <= M rows.
  template <int M, int N, Order order>
  static TENON_INLINE void rows(int64_t m, const Block& g) {
    if constexpr (M > 0) {
      if (m == M) {
        micro<M, N, order>(g);
      } else {
        rows<M - 1, N, order>(m, g);
      }
    }
  }

  template <int N, Order order>
  static void column(int64_t m, Block g) {
    for (; m >= kRows; m -= kRows) {
      micro<kRows, N, order>(g);
      g.a += order == Order::panel ? kRows : kRows * g.lda;
      g.c += kRows * g.ldc;
    }
    rows<kRows - 1, N, order>(m, g);
  }

  // A small product of operands that lie as they are. n is a multiple of the lanes; rows of B and C are
  // readable and writable up to it.
  template <Order order>
  static void block(int64_t m, int64_t n, Block g) {
    int64_t vectors = n / kLanes<T>;
    const auto step = [&](int64_t taken) {
      g.b += taken * kLanes<T>;
      g.c += taken * kLanes<T>;
      vectors -= taken;
    };
    for (; vectors > 4 || vectors == 3; step(3)) column<3, order>(m, g);
    for (; vectors > 1; step(2)) column<2, order>(m, g);  // 4 vectors are 2 + 2: a single one is slow
    if (vectors > 0) column<1, order>(m, g);
  }

  // As panels(), where the last of C's columns end within a vector.
  template <Order order>
  static void edge(int64_t m, int64_t n, const Block& g) {
    alignas(64) T c[kRows * kWidth];
    Block whole = g;
    whole.c = c;
    whole.ldc = kWidth;
    whole.add = false;
    rows<kRows, kCols, order>(m, whole);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        T& out = g.c[i * g.ldc + j];
        out = g.add ? out + c[i * kWidth + j] : c[i * kWidth + j];
      }
    }
  }

  // At most kRows rows of A times one panel of B.
  template <Order order>
  static TENON_INLINE void panels(int64_t m, int64_t n, const Block& g) {
    if (n == kWidth) {
      rows<kRows, kCols, order>(m, g);
    } else if (n % kLanes<T> == 0) {
      block<order>(m, n, g);
    } else {
      edge<order>(m, n, g);
    }
  }

  template <Order order>
  static void product_of(const ProductArgs<T>& g) {
    const auto at = [&](int64_t i, int64_t j) {
      const int64_t m = g.m - i < kRows ? g.m - i : kRows, n = g.n - j < kWidth ? g.n - j : kWidth;
      const bool packed = g.ldb == 0;
      panels<order>(
          m, n,
          {g.k, g.a + i * (order == Order::panel ? g.k : g.lda), order == Order::panel ? kRows : g.lda,
           g.b + j * (packed ? g.k : 1), packed ? kWidth : g.ldb, g.c + i * g.ldc + j, g.ldc, g.add});
    };
    // A panel of the longer side stays in the first cache while the shorter side, from the second, passes.
    if (g.m > g.n) {
      for (int64_t i = 0; i < g.m; i += kRows) {
        for (int64_t j = 0; j < g.n; j += kWidth) at(i, j);
      }
    } else {
      for (int64_t j = 0; j < g.n; j += kWidth) {
        for (int64_t i = 0; i < g.m; i += kRows) at(i, j);
      }
    }
  }

  static void product(const ProductArgs<T>& g) {
    g.lda == 0 ? product_of<Order::panel>(g) : product_of<Order::row_major>(g);
  }

  // Square blocks of vectors turned in registers: x[p][i] becomes x[i][p].
  static TENON_INLINE void transpose(V* x) {
    constexpr int kSide = static_cast<int>(kLanes<T>);
#pragma GCC unroll 4
    for (int half = kSide / 2; half > 0; half /= 2) {
      typename Simd<T>::Bits low{}, high{};
#pragma GCC unroll 16
      for (int l = 0; l < kSide; ++l) {
        low[l] = (l & half) == 0 ? l : kSide + l - half;
        high[l] = (l & half) == 0 ? l + half : kSide + l;
      }
#pragma GCC unroll 16
      for (int i = 0; i < kSide; ++i) {
        if ((i & half) != 0) continue;
        const V a = x[i], b = x[i + half];
        x[i] = __builtin_shuffle(a, b, low);
        x[i + half] = __builtin_shuffle(a, b, high);
      }
    }
  }

  // Panels of `Width` elements along i: element (i, p) goes to to[(i / Width * depth + p) * Width + i %
  // Width], with zeros where i reaches beyond n. Element (i, p) lies at from[i * row + p * col], one of which
  // is 1.
  template <int64_t Width>
  static void pack(const T* from, int64_t row, int64_t col, T* to, int64_t n, int64_t depth) {
    constexpr int64_t kSide = kLanes<T>;
    static_assert(Width % kSide == 0);
    V x[kSide];
    for (int64_t i = 0; i < round_up(n, Width); i += kSide) {
      const int64_t rows = n - i < kSide ? (n > i ? n - i : 0) : kSide;
      for (int64_t p = 0; p < depth; p += kSide) {
        const int64_t cols = depth - p < kSide ? depth - p : kSide;
        const T* at = from + i * row + p * col;
        if (col == 1) {
#pragma GCC unroll 16
          for (int64_t k = 0; k < kSide; ++k) x[k] = k < rows ? load_part(at + k * row, cols) : V{};
          transpose(x);
        } else {
#pragma GCC unroll 16
          for (int64_t k = 0; k < kSide; ++k) x[k] = k < cols ? load_part(at + k * col, rows) : V{};
        }
        T* panel = to + (i / Width * depth + p) * Width + i % Width;
        for (int64_t k = 0; k < cols; ++k) store<T>(panel + k * Width, x[k]);
      }
    }
  }

  // Panels of kRows rows, each element p of all of them side by side; rows that are missing are not written.
  static void pack_rows(const T* from, int64_t ld, T* to, int64_t m, int64_t depth) {
    for (int64_t i = 0; i < m; i += kRows, to += depth * kRows) {
      const int64_t rows = m - i < kRows ? m - i : kRows;
      for (int64_t p = 0; p < depth; ++p) {
        const T* at = from + p * ld + i;
        if (rows == kRows) {
          __builtin_memcpy(to + p * kRows, at, kRows * sizeof(T));
        } else {
          for (int64_t r = 0; r < rows; ++r) to[p * kRows + r] = at[r];
        }
      }
    }
  }

  static void pack_columns(const T* from, int64_t row, int64_t col, T* to, int64_t n, int64_t depth) {
    pack<kWidth>(from, col, row, to, n, depth);
  }
};

}  // namespace
}  // namespace tenon::kernels::cpu::TENON_ISA
