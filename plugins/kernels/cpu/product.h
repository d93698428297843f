// Matrix products on all threads. One operand is packed whole, by all; then C is cut into stripes, and
// whoever computes a stripe packs that part of the other operand, which stays in its cache.
#pragma once

#include "op.h"
#include "phases.h"

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
};

// How a product is cut: by its sizes alone.
struct Cut {
  static constexpr int64_t kWide = 2304;  // columns of C that give enough stripes, and even ones
  bool rows_shared;  // A is packed once and stripes are columns of C; else B is, and stripes are rows
  int64_t stripe;    // rows or columns of a stripe; a multiple of every panel
  int64_t stripes;
  int64_t parts;  // that may run at once, each with scratch of its own
  int64_t depth;  // of a block of the sum: a stripe of that depth stays in the second cache
  int64_t slab;   // of the shared operand that is packed at a time; a multiple of depth

  Cut(int64_t m, int64_t n, int64_t k) : rows_shared(m < n && n >= kWide) {
    constexpr int64_t kDepth = 512, kStripe = 192, kEnough = 8, kEven = 4, kParts = 32,
                      kShared = int64_t{1} << 22;
    const int64_t total = rows_shared ? n : m, shared = rows_shared ? m : n;
    const int64_t wanted = std::max(kEnough, round_up((total + kStripe - 1) / kStripe, kEven));
    stripe = round_up(std::max<int64_t>(1, (total + wanted - 1) / wanted), rows_shared ? kMaxCols : kMaxRows);
    stripes = (total + stripe - 1) / stripe;
    parts = std::min(kParts, stripes);
    const int64_t blocks = std::max<int64_t>(1, (k + kDepth - 1) / kDepth);
    depth = (k + blocks - 1) / blocks;
    slab = std::clamp<int64_t>(kShared / std::max<int64_t>(1, shared * depth), 1, blocks) * depth;
  }
  int64_t shared_panels(int64_t m, int64_t n) const {
    return rows_shared ? round_up(m, kMaxRows) : round_up(n, kMaxCols);
  }
  int64_t stripe_elements() const { return round_up(stripe * depth, kMaxLanes); }
};

inline int64_t product_bytes(const Problem& problem, int64_t m, int64_t n, int64_t k) {
  const Cut cut(m, n, k);
  return (round_up(cut.shared_panels(m, n) * cut.slab, kMaxLanes) + cut.parts * cut.stripe_elements()) *
         real_bytes(problem);
}

template <class T>
class Multiply {
 public:
  Multiply(const Call& call, const Product<T>& p)
      : call_(call),
        p_(p),
        cut_(p.m, p.n, p.k),
        shared_(call.workspace<T>()),
        shared_panels_(cut_.shared_panels(p.m, p.n)),
        own_(shared_ + round_up(shared_panels_ * cut_.slab, kMaxLanes)) {}

  void run() const {
    const int64_t shared = cut_.rows_shared ? p_.m : p_.n, chunks = (shared + kMaxCols - 1) / kMaxCols;
    const int64_t threads = small() ? 1 : std::min<int64_t>(call_.threads(), cut_.parts);
    for (int64_t begin = 0; begin < p_.k; begin += cut_.slab) {
      const int64_t end = std::min(p_.k, begin + cut_.slab);
      Phases phases(chunks, cut_.stripes);
      call_.parallel(threads, [&](int64_t part) {
        phases.run(
            [&](int64_t i) {
              pack_shared(i * kMaxCols, std::min(kMaxCols, shared - i * kMaxCols), begin, end);
            },
            [&](int64_t stripe) { multiply_stripe(part, stripe, begin, end); });
      });
    }
  }

 private:
  const Loops<T>& loops() const { return call_.loops<T>(); }

  void pack_rows(int64_t i, int64_t k, T* to, int64_t n, int64_t depth) const {
    const int64_t row = p_.a_transposed ? 1 : p_.k, col = p_.a_transposed ? p_.m : 1;
    loops().pack_rows(p_.a + i * row + k * col, row, col, to, n, depth);
  }
  void pack_cols(int64_t j, int64_t k, T* to, int64_t n, int64_t depth) const {
    const int64_t row = p_.b_transposed ? p_.k : 1, col = p_.b_transposed ? 1 : p_.n;
    loops().pack_cols(p_.b + j * row + k * col, row, col, to, n, depth);
  }

  // Waking another thread would take longer.
  bool small() const { return p_.m * p_.n * p_.k < int64_t{1} << 21; }

  // Block by block of the sum; within one, panel by panel.
  void pack_shared(int64_t i, int64_t n, int64_t begin, int64_t end) const {
    for (int64_t k = begin; k < end; k += cut_.depth) {
      const int64_t depth = std::min(cut_.depth, end - k);
      T* to = shared_ + (k - begin) * shared_panels_ + i * depth;
      cut_.rows_shared ? pack_rows(i, k, to, n, depth) : pack_cols(i, k, to, n, depth);
    }
  }

  void multiply_stripe(int64_t part, int64_t stripe, int64_t begin, int64_t end) const {
    for (int64_t k = begin; k < end; k += cut_.depth)
      block(part, stripe, begin, k, std::min(cut_.depth, end - k));
  }

  void block(int64_t part, int64_t stripe, int64_t slab, int64_t k, int64_t depth) const {
    const int64_t at = stripe * cut_.stripe;
    const T* shared = shared_ + (k - slab) * shared_panels_;
    T* own = own_ + part * cut_.stripe_elements();
    const bool add = k > 0 || call_.problem.accumulate();
    if (cut_.rows_shared) {
      const int64_t n = std::min(cut_.stripe, p_.n - at);
      pack_cols(at, k, own, n, depth);
      loops().product({p_.m, n, depth, shared, own, p_.c + at, p_.n, add});
    } else {
      const int64_t m = std::min(cut_.stripe, p_.m - at);
      pack_rows(at, k, own, m, depth);
      loops().product({m, p_.n, depth, own, shared, p_.c + at * p_.n, p_.n, add});
    }
  }

  const Call& call_;
  const Product<T>& p_;
  Cut cut_;
  T* shared_;
  int64_t shared_panels_;
  T* own_;
};

template <class T>
void product(const Call& call, const Product<T>& p) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k > 0) {
    Multiply<T>(call, p).run();
  } else if (!call.problem.accumulate()) {
    std::fill_n(p.c, p.m * p.n, T{0});
  }
}

}  // namespace tenon::kernels::cpu
