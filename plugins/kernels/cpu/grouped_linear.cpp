// grouped_linear and its gradients. The rows of one expert, G * C of them, lie in G blocks of C. The result
// is cut into tiles; who computes one copies its rows together and packs what is not in order, so that
// products are as high as the experts' rows and not as the capacity. Sums are cut at fixed depths and added
// in order.
#include <cstring>

#include "op.h"

namespace tenon::kernels::cpu {
namespace {

constexpr int64_t kTileRows = 384, kTileCols = 384, kDepth = 256;  // at most
constexpr int64_t kWorkers = 16;  // tiles that may be computed at once, each with scratch of its own

// The blocks of a tensor [G, E, C, width].
template <class T>
struct Rows {
  T* data;
  int64_t groups, experts, slots, width;

  int64_t count() const { return groups * slots; }
  T* row(int64_t expert, int64_t r) const {
    return data + ((r / slots * experts + expert) * slots + r % slots) * width;
  }
};

// Rows [first, first + n) of one expert, of each the columns [col, col + cols), into dense memory.
template <class T>
void copy_in(const Rows<const T>& from, int64_t expert, int64_t first, int64_t n, int64_t col, int64_t cols,
             T* to) {
  for (int64_t r = 0; r < n; ++r) {
    std::memcpy(to + r * cols, from.row(expert, first + r) + col, static_cast<size_t>(cols) * sizeof(T));
  }
}

template <class T>
void copy_out(const T* from, const Rows<T>& to, int64_t expert, int64_t first, int64_t n, int64_t col,
              int64_t cols) {
  for (int64_t r = 0; r < n; ++r) {
    std::memcpy(to.row(expert, first + r) + col, from + r * cols, static_cast<size_t>(cols) * sizeof(T));
  }
}

struct Sizes {
  int64_t groups, experts, slots, outs, ins;

  explicit Sizes(const Problem& p)
      : groups(p.size("b") * p.size("n")),
        experts(p.size("e")),
        slots(p.size("c")),
        outs(p.size("o..")),
        ins(p.size("k..")) {}
  int64_t rows() const { return groups * slots; }
  template <class T>
  Rows<T> tensor(T* data, int64_t width) const {
    return {data, groups, experts, slots, width};
  }
};

// The tiles of one [rows, cols] result per expert, and the scratch of a tile, in elements: rows copied
// together, both packed sides, and the tile itself.
struct Plan {
  int64_t row_total, col_total, rows, cols, depth, row_tiles, col_tiles, count, loose, left, right, tile;

  Plan(int64_t experts, int64_t rows_total, int64_t cols_total, int64_t sum)
      : row_total(rows_total),
        col_total(cols_total),
        rows(std::min(kTileRows, rows_total)),
        cols(std::min(kTileCols, cols_total)),
        depth(std::min(kDepth, sum)),
        row_tiles((rows_total + kTileRows - 1) / kTileRows),
        col_tiles((cols_total + kTileCols - 1) / kTileCols),
        count(experts * row_tiles * col_tiles),
        loose(round_up(std::max(rows, cols) * depth, kMaxLanes)),
        left(round_up(round_up(rows, kMaxRows) * depth, kMaxLanes)),
        right(round_up(round_up(cols, kMaxCols) * depth, kMaxLanes)),
        tile(round_up(rows * cols, kMaxLanes)) {}
  int64_t scratch() const { return loose + left + right + tile; }
  int64_t bytes(const Problem& p) const { return std::min(kWorkers, count) * scratch() * real_bytes(p); }
};

// One tile, and its worker's scratch.
template <class T>
struct Tile {
  int64_t expert, row, rows, col, cols;
  T *loose, *left, *right, *tile;
};

// body(tile) for each.
template <class T, class Body>
void each_tile(const Call& call, const Plan& plan, Body&& body) {
  call.take(plan.count, kWorkers, [&](int64_t worker, int64_t i) {
    T* loose = call.workspace<T>() + worker * plan.scratch();
    T *left = loose + plan.loose, *right = left + plan.left;
    const int64_t row = i / plan.col_tiles % plan.row_tiles * kTileRows, col = i % plan.col_tiles * kTileCols;
    body(Tile<T>{i / plan.col_tiles / plan.row_tiles, row, std::min(kTileRows, plan.row_total - row), col,
                 std::min(kTileCols, plan.col_total - col), loose, left, right, right + plan.right});
  });
}

// y = x w^T, or backward dx = dy w: the sum is over w's columns (ins) or its rows (outs).
Plan map_plan(const Problem& p, bool backward) {
  const Sizes n(p);
  return {n.experts, n.rows(), backward ? n.ins : n.outs, backward ? n.outs : n.ins};
}

template <class T>
void map_rows(const Call& call, bool backward) {
  const Sizes n(call.problem);
  const int64_t sum = backward ? n.outs : n.ins, width = backward ? n.ins : n.outs;
  const Rows<const T> x = n.tensor(call.in<T>(0), sum);
  const Rows<T> y = n.tensor(call.out<T>(0), width);
  if (sum == 0) std::fill_n(y.data, n.rows() * n.experts * width, T{0});
  if (sum == 0) return;
  const Loops<T>& loops = call.loops<T>();
  each_tile<T>(call, map_plan(call.problem, backward), [&](const Tile<T>& t) {
    const T* w = call.in<T>(1) + t.expert * n.outs * n.ins;
    for (int64_t k = 0; k < sum; k += kDepth) {
      const int64_t depth = std::min(kDepth, sum - k);
      copy_in(x, t.expert, t.row, t.rows, k, depth, t.loose);
      if (backward) {
        loops.pack_columns(w + k * n.ins + t.col, n.ins, 1, t.right, t.cols, depth);
      } else {
        loops.pack_columns(w + t.col * n.ins + k, 1, n.ins, t.right, t.cols, depth);
      }
      loops.product({t.rows, t.cols, depth, t.loose, depth, t.right, 0, t.tile, t.cols, k > 0});
    }
    copy_out(t.tile, y, t.expert, t.row, t.rows, t.col, t.cols);
  });
}

template <class T>
void grouped_linear(const Call& call) {
  map_rows<T>(call, false);
}

template <class T>
void grouped_linear_dgrad(const Call& call) {
  map_rows<T>(call, true);
}

Plan wgrad_plan(const Problem& p) {
  const Sizes n(p);
  return {n.experts, n.outs, n.ins, n.rows()};
}

// dw[O,K] (+)= sum over the expert's rows of dy^T x
template <class T>
void grouped_linear_wgrad(const Call& call) {
  const Sizes n(call.problem);
  const Rows<const T> dy = n.tensor(call.in<T>(0), n.outs), x = n.tensor(call.in<T>(1), n.ins);
  T* dw = call.out<T>(0);
  if (n.rows() == 0 && !call.problem.accumulate()) std::fill_n(dw, n.experts * n.outs * n.ins, T{0});
  if (n.rows() == 0) return;
  const Loops<T>& loops = call.loops<T>();
  each_tile<T>(call, wgrad_plan(call.problem), [&](const Tile<T>& t) {
    T* to = dw + (t.expert * n.outs + t.row) * n.ins + t.col;
    for (int64_t r = 0; r < n.rows(); r += kDepth) {
      const int64_t depth = std::min(kDepth, n.rows() - r);
      copy_in(dy, t.expert, r, depth, t.row, t.rows, t.loose);
      loops.pack_rows(t.loose, t.rows, t.left, t.rows, depth);
      copy_in(x, t.expert, r, depth, t.col, t.cols, t.loose);
      loops.pack_columns(t.loose, t.cols, 1, t.right, t.cols, depth);
      loops.product(
          {t.rows, t.cols, depth, t.left, 0, t.right, 0, to, n.ins, r > 0 || call.problem.accumulate()});
    }
  });
}

constexpr Entry kOps[] = {
    {"grouped_linear", grouped_linear<float>, grouped_linear<double>, nullptr, nullptr,
     [](const Problem& p) { return map_plan(p, false).bytes(p); }},
    {"grouped_linear_dgrad", grouped_linear_dgrad<float>, grouped_linear_dgrad<double>, nullptr, nullptr,
     [](const Problem& p) { return map_plan(p, true).bytes(p); }},
    {"grouped_linear_wgrad", grouped_linear_wgrad<float>, grouped_linear_wgrad<double>, nullptr, nullptr,
     [](const Problem& p) { return wgrad_plan(p).bytes(p); }},
};

}  // namespace

std::span<const Entry> grouped_linear_ops() { return kOps; }

}  // namespace tenon::kernels::cpu
