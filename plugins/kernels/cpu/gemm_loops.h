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

  template <int M, int N>
  static TENON_INLINE void store_sums(const Block& g, const V (&sum)[M][N]) {
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) {
        T* c = g.c + i * g.ldc + j * kLanes<T>;
        store<T>(c, g.add ? load(c) + sum[i][j] : sum[i][j]);
      }
    }
  }

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
    store_sums<M, N>(g, sum);
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
    for (int64_t left = n / kLanes<T>; left > 0;) {
      const int64_t taken = left > 4 || left == 3 ? 3 : at_most(left, 2);  // 4 are 2 + 2: one alone is slow
      if (taken == 3) {
        column<3, order>(m, g);
      } else if (taken == 2) {
        column<2, order>(m, g);
      } else {
        column<1, order>(m, g);
      }
      left -= taken;
      g.b += taken * kLanes<T>;
      g.c += taken * kLanes<T>;
    }
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

  // The part of C with rows from i and columns from j on that one panel of A and one of B make.
  template <Order order>
  static TENON_INLINE void tile(const ProductArgs<T>& g, int64_t i, int64_t j) {
    const bool packed = g.ldb == 0, panel = order == Order::panel;
    const Block block{g.k,
                      g.a + i * (panel ? g.k : g.lda),
                      panel ? kRows : g.lda,
                      g.b + j * (packed ? g.k : 1),
                      packed ? kWidth : g.ldb,
                      g.c + i * g.ldc + j,
                      g.ldc,
                      g.add};
    panels<order>(at_most(g.m - i, kRows), at_most(g.n - j, kWidth), block);
  }

  // A panel of the longer side stays in the first cache while the shorter side, from the second, passes.
  template <Order order>
  static void product_of(const ProductArgs<T>& g) {
    if (g.m > g.n) {
      for (int64_t i = 0; i < g.m; i += kRows) {
        for (int64_t j = 0; j < g.n; j += kWidth) tile<order>(g, i, j);
      }
    } else {
      for (int64_t j = 0; j < g.n; j += kWidth) {
        for (int64_t i = 0; i < g.m; i += kRows) tile<order>(g, i, j);
      }
    }
  }

  static void product(const ProductArgs<T>& g) {
    g.lda == 0 ? product_of<Order::panel>(g) : product_of<Order::row_major>(g);
  }

  // Square blocks of vectors turned in registers: x[p][i] becomes x[i][p].
  template <int64_t kHalf = kLanes<T> / 2>
  static TENON_INLINE void transpose(V* x) {
    if constexpr (kHalf > 0) {
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes<T>; ++i) {
        if ((i & kHalf) != 0) continue;
        const V a = x[i], b = x[i + kHalf];
        x[i] = join_low<kHalf>(a, b, Lanes<T>{});
        x[i + kHalf] = join_high<kHalf>(a, b, Lanes<T>{});
      }
      transpose<kHalf / 2>(x);
    }
  }

  static TENON_INLINE int64_t at_most(int64_t n, int64_t most) { return n < most ? n : most; }

  // `count` rows of `length` elements, and zeros in the rest of a square block.
  static TENON_INLINE void load_block(const T* at, int64_t ld, int64_t count, int64_t length, V* x) {
#pragma GCC unroll 16
    for (int64_t k = 0; k < kLanes<T>; ++k) x[k] = k < count ? load_part(at + k * ld, length) : V{};
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
      const int64_t rows = n > i ? at_most(n - i, kSide) : 0;
      for (int64_t p = 0; p < depth; p += kSide) {
        const int64_t cols = at_most(depth - p, kSide);
        const T* at = from + i * row + p * col;
        if (col == 1) {
          load_block(at, row, rows, cols, x);
          transpose(x);
        } else {
          load_block(at, col, cols, rows, x);
        }
        T* panel = to + (i / Width * depth + p) * Width + i % Width;
        for (int64_t k = 0; k < cols; ++k) store<T>(panel + k * Width, x[k]);
      }
    }
  }

  // Panels of kRows rows, each element p of all of them side by side; rows that are missing are not written.
  static void pack_rows(const T* from, int64_t ld, T* to, int64_t m, int64_t depth) {
    for (int64_t i = 0; i < m; i += kRows, to += depth * kRows) {
      const int64_t rows = at_most(m - i, kRows);
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
