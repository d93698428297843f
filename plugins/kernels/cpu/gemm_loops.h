// Matrix products in cache: C[m,n] (+)= A[m,k] B[k,n]. Each element of C sums over k in order, so its
// bits do not depend on how m and n are cut.
#pragma once

#include "loops.h"
#include "simd.h"

namespace tenon::kernels::cpu::TENON_ISA {
namespace {

// How A lies: row_major a[i * lda + p], or panel a[p * lda + i].
enum class Order { row_major, panel };

#if TENON_VECTOR_BYTES == 64
constexpr int kRows = 8;  // rows of C in registers
#elif TENON_VECTOR_BYTES == 32
constexpr int kRows = 6;
#else
constexpr int kRows = 4;
#endif
constexpr int kCols = 2;  // vectors of C in registers

template <class T>
struct Gemm {
  using V = Vec<T>;
  static_assert(kRows <= kMaxRows && kLanes<T> <= kMaxLanes);

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
    V sum[M][N] = {};
    const T *a = g.a, *b = g.b;
#pragma GCC unroll 2
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

  // The last m < kRows rows.
  template <int M, int N, Order order>
  static void rest(int64_t m, const Block& g) {
    if constexpr (M > 0) {
      if (m == M) {
        micro<M, N, order>(g);
      } else {
        rest<M - 1, N, order>(m, g);
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
    rest<kRows - 1, N, order>(m, g);
  }

  // n is a multiple of the lanes; rows of B and C are readable and writable up to it.
  template <Order order>
  static void block(int64_t m, int64_t n, Block g) {
    int64_t vectors = n / kLanes<T>;
    for (; vectors >= kCols; vectors -= kCols) {
      column<kCols, order>(m, g);
      g.b += kCols * kLanes<T>;
      g.c += kCols * kLanes<T>;
    }
    if (vectors > 0) column<1, order>(m, g);
  }

  // to[p * ld + i] = from[i * row + p * col], i < n, p < k; zero up to padded.
  static void pack(const T* from, int64_t row, int64_t col, T* to, int64_t n, int64_t padded, int64_t ld,
                   int64_t k) {
    constexpr int64_t kTile = 16;  // square tiles keep both sides in cache
    for (int64_t i0 = 0; i0 < n; i0 += kTile) {
      const int64_t i1 = i0 + kTile < n ? i0 + kTile : n;
      for (int64_t p0 = 0; p0 < k; p0 += kTile) {
        const int64_t p1 = p0 + kTile < k ? p0 + kTile : k;
        for (int64_t p = p0; p < p1; ++p) {
          for (int64_t i = i0; i < i1; ++i) to[p * ld + i] = from[i * row + p * col];
        }
      }
    }
    for (int64_t p = 0; p < k; ++p) {
      for (int64_t i = n; i < padded; ++i) to[p * ld + i] = 0;
    }
  }

  // A whole product of strided operands, through packed copies of both.
  static void gemm(const GemmArgs<T>& g) {
    const int64_t m_padded = round_up(g.m, kMaxRows), n_padded = round_up(g.n, kMaxLanes);
    T *a = g.scratch, *b = a + m_padded * kDepth, *c = b + n_padded * kDepth;
    for (int64_t i = 0; i < g.m * n_padded; ++i) c[i] = 0;
    for (int64_t p = 0; p < g.k; p += kDepth) {
      const int64_t depth = g.k - p < kDepth ? g.k - p : kDepth;
      pack(g.b + p * g.b_row, g.b_col, g.b_row, b, g.n, n_padded, n_padded, depth);
      pack(g.a + p * g.a_col, g.a_row, g.a_col, a, g.m, g.m, m_padded, depth);
      block<Order::panel>(g.m, n_padded, {depth, a, m_padded, b, n_padded, c, n_padded, true});
    }
    for (int64_t i = 0; i < g.m; ++i) {
      for (int64_t j = 0; j < g.n; ++j) {
        T& out = g.c[i * g.ldc + j];
        out = g.add ? out + c[i * n_padded + j] : c[i * n_padded + j];
      }
    }
  }
};

}  // namespace
}  // namespace tenon::kernels::cpu::TENON_ISA
