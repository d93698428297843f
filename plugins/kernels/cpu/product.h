// Matrix products on all threads: C is cut into tiles, and who computes a tile shares nothing with the others
// but what all read. An operand whose rows do not run the right way is packed tile by tile; the others are
// read where they lie.
#pragma once

#include "op.h"

namespace tenon::kernels::cpu {

// C[m,n] (+)= op(A)[m,k] op(B)[k,n], all row-major and dense.
template <class T>
struct Product {
  int64_t m, n, k;
  const T* a;
  bool a_transposed;
  const T* b;
  bool b_transposed;
  T* c;
  bool add;
  T* scratch;  // product_bytes()
};

// Terms of a sum of k that are added to each other before they are added to those before them: so whoever
// makes the blocks one by one gets the bits of the whole.
inline int64_t sum_block(int64_t k) {
  constexpr int64_t kMost = 512;
  const int64_t blocks = std::max<int64_t>(1, (k + kMost - 1) / kMost);
  return std::max<int64_t>(1, (k + blocks - 1) / blocks);
}

// How a product is cut: by its sizes, and by what has to be packed.
struct Cut {
  bool pack_a, pack_b;
  int64_t m, n;        // of a tile
  int64_t rows, cols;  // number of tiles
  int64_t depth;  // of a block of the sum: that much of the tile's shorter side stays in the second cache
  int64_t
      slab;  // of the sum that all tiles do before any goes on: it stays in the third; a multiple of depth

  Cut(int64_t total_m, int64_t total_n, int64_t k, bool a_transposed, bool b_transposed)
      : pack_a(a_transposed), pack_b(b_transposed || total_n % kMaxLanes != 0) {
    constexpr int64_t kLong = 1024, kShort = 128, kEnough = 8, kSlab = int64_t{1} << 22;
    // What is packed is used along the whole other side.
    m = std::clamp<int64_t>(total_m, 1, pack_a ? kShort : kLong);
    n = std::clamp<int64_t>(round_up(total_n, kMaxCols), kMaxCols, pack_a ? 768 : 192);
    while (count(total_m, m) * count(total_n, n) < kEnough && halve()) {
    }
    rows = count(total_m, m);
    cols = count(total_n, n);
    depth = sum_block(k);
    const int64_t blocks = std::max<int64_t>(1, count(k, depth));
    slab = std::clamp<int64_t>(kSlab / std::max<int64_t>(1, (total_m + total_n) * depth), 1, blocks) * depth;
  }
  int64_t tiles() const { return rows * cols; }
  // Elements that a tile packs.
  int64_t packed_a() const { return pack_a ? round_up(round_up(m, kMaxRows) * depth, kMaxLanes) : 0; }
  int64_t packed_b() const { return pack_b ? round_up(n * depth, kMaxLanes) : 0; }

 private:
  static int64_t count(int64_t total, int64_t size) { return (total + size - 1) / size; }
  // First the side that leaves what is packed in use as often. False where tiles are as small as pays.
  bool halve() {
    constexpr int64_t kLeast = 32;
    const bool narrow = n > kMaxCols, low = m >= 2 * kLeast;
    if (narrow && (!low || pack_b || (!pack_a && n > m))) {
      n = round_up(n / 2, kMaxCols);
    } else if (low) {
      m = round_up(m / 2, kMaxRows);
    }
    return narrow || low;
  }
};

// Tiles that are computed at once, each with scratch of its own.
constexpr int64_t kProductWorkers = 32;

inline int64_t product_bytes(const Problem& problem, int64_t m, int64_t n, int64_t k, bool a_transposed,
                             bool b_transposed) {
  const Cut cut(m, n, k, a_transposed, b_transposed);
  return std::min(kProductWorkers, cut.tiles()) * (cut.packed_a() + cut.packed_b()) * real_bytes(problem);
}

template <class T>
class Multiply {
 public:
  Multiply(const Call& call, const Product<T>& p)
      : call_(call), p_(p), cut_(p.m, p.n, p.k, p.a_transposed, p.b_transposed) {}

  void run() const {
    for (int64_t begin = 0; begin < p_.k; begin += cut_.slab) {
      const int64_t end = std::min(p_.k, begin + cut_.slab);
      const auto tiles = [&](int64_t worker, int64_t tile) {
        for (int64_t k = begin; k < end; k += cut_.depth)
          block(worker, tile, k, std::min(cut_.depth, end - k));
      };
      const double work = static_cast<double>(p_.m * p_.n) * static_cast<double>(end - begin);
      call_.take(cut_.tiles(), kProductWorkers, tiles, work);
    }
  }

 private:
  void block(int64_t worker, int64_t tile, int64_t k, int64_t depth) const {
    const int64_t i = tile / cut_.cols * cut_.m, j = tile % cut_.cols * cut_.n;
    const int64_t m = std::min(cut_.m, p_.m - i), n = std::min(cut_.n, p_.n - j);
    const Loops<T>& loops = call_.loops<T>();
    T* scratch = p_.scratch + worker * (cut_.packed_a() + cut_.packed_b());
    const T* a = p_.a + (p_.a_transposed ? k * p_.m + i : i * p_.k + k);
    const T* b = p_.b + (p_.b_transposed ? j * p_.k + k : k * p_.n + j);
    if (cut_.pack_a) {
      loops.pack_rows(a, p_.m, scratch, m, depth);
      a = scratch;
    }
    if (cut_.pack_b) {
      T* to = scratch + cut_.packed_a();
      loops.pack_columns(b, p_.b_transposed ? 1 : p_.n, p_.b_transposed ? p_.k : 1, to, n, depth);
      b = to;
    }
    loops.product({.m = m,
                   .n = n,
                   .k = depth,
                   .a = a,
                   .lda = cut_.pack_a ? 0 : p_.k,
                   .b = b,
                   .ldb = cut_.pack_b ? 0 : p_.n,
                   .c = p_.c + i * p_.n + j,
                   .ldc = p_.n,
                   .add = k > 0 || p_.add});
  }

  const Call& call_;
  const Product<T>& p_;
  Cut cut_;
};

template <class T>
void product(const Call& call, const Product<T>& p) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k > 0) {
    Multiply<T>(call, p).run();
  } else if (!p.add) {
    std::fill_n(p.c, p.m * p.n, T{0});
  }
}

}  // namespace tenon::kernels::cpu
