// grouped_linear and its gradients. The rows of one expert, G * C of them, lie in G blocks of C. Products are
// cut into tiles of the result; a tile's rows are copied together first, which costs one part in a hundred
// of the product, so that oneDNN sees dense matrices of useful height whatever the capacity is.
#include <dnnl.h>
#include <omp.h>

#include <atomic>
#include <cstring>

#include "op.h"

namespace tenon::kernels::cpu {
namespace {

constexpr int64_t kTileRows = 128, kTileCols = 192;
constexpr int64_t kSumRows = 512;  // of a weight's gradient: rows that are summed in one product, in order
constexpr int64_t kParts = 16;     // each with scratch of its own; parts take turns over tiles

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

// C[m,n] (+)= op(A)[m,k] op(B)[k,n], row-major; ld: elements between rows as stored.
template <class T>
struct Product {
  int64_t m, n, k;
  const T* a;
  int64_t lda;
  bool a_transposed;
  const T* b;
  int64_t ldb;
  bool b_transposed;
  T* c;
  int64_t ldc;
  bool add;
};

// One call of one op, and what its tiles have in common.
struct Work {
  const Call& call;
  std::atomic<int> failed{dnnl_success};

  // On the calling thread: plugins own no threads.
  void multiply(const Product<float>& p, float*) {
    const int before = omp_get_max_threads();
    omp_set_num_threads(1);
    const dnnl_status_t status =
        dnnl_sgemm(p.a_transposed ? 'T' : 'N', p.b_transposed ? 'T' : 'N', p.m, p.n, p.k, 1.0f, p.a, p.lda,
                   p.b, p.ldb, p.add ? 1.0f : 0.0f, p.c, p.ldc);
    omp_set_num_threads(before);
    if (status != dnnl_success) failed = status;
  }
  void multiply(const Product<double>& p, double* scratch) {
    call.loops<double>().gemm({.m = p.m,
                               .n = p.n,
                               .k = p.k,
                               .a = p.a,
                               .a_row = p.a_transposed ? 1 : p.lda,
                               .a_col = p.a_transposed ? p.lda : 1,
                               .b = p.b,
                               .b_row = p.b_transposed ? 1 : p.ldb,
                               .b_col = p.b_transposed ? p.ldb : 1,
                               .c = p.c,
                               .ldc = p.ldc,
                               .add = p.add,
                               .scratch = scratch});
  }
  void check() const {
    if (failed == dnnl_success) return;
    throw sdk::Failure(failed == dnnl_out_of_memory ? TENON_E_MEMORY : TENON_E_DEVICE,
                       std::string(call.problem.kind()) + ": dnnl_sgemm failed", "onednn", failed);
  }
};

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

// The tiles of one [rows, cols] result per expert.
struct Tiles {
  int64_t rows, cols, row_tiles, col_tiles, count;

  Tiles(int64_t experts, int64_t rows_total, int64_t cols_total)
      : rows(std::min(kTileRows, round_up(rows_total, 16))),
        cols(std::min(kTileCols, round_up(cols_total, 16))),
        row_tiles(rows > 0 ? (rows_total + rows - 1) / rows : 0),
        col_tiles(cols > 0 ? (cols_total + cols - 1) / cols : 0),
        count(experts * row_tiles * col_tiles) {}
  int64_t parts() const { return std::min(kParts, count); }

  // body(part, expert, row tile, column tile)
  template <class Body>
  void each(const Call& call, Body&& body) const {
    call.parallel(parts(), [&](int64_t part) {
      for (int64_t i = part; i < count; i += parts())
        body(part, i / col_tiles / row_tiles, i / col_tiles % row_tiles, i % col_tiles);
    });
  }
};

// Scratch of one part, in elements: both sides of a product, and what the product itself needs.
struct Scratch {
  int64_t left, right, gemm;

  Scratch(const Problem& p, const Tiles& tiles, int64_t left_elements, int64_t right_elements)
      : left(round_up(left_elements, 16)),
        right(round_up(right_elements, 16)),
        gemm(p.dtype() == TENON_F64 ? round_up(gemm_scratch(tiles.rows, tiles.cols), 16) : 0) {}
  int64_t elements() const { return left + right + gemm; }
};

// y = x w^T, or dx = dy w: the result's columns are w's rows (outs) or w's columns (ins).
struct MapPlan {
  Sizes n;
  int64_t from, to;
  Tiles tiles;
  Scratch scratch;  // left: rows of the input; right: the tile

  explicit MapPlan(const Problem& p, bool backward)
      : n(p),
        from(backward ? n.outs : n.ins),
        to(backward ? n.ins : n.outs),
        tiles(n.experts, n.rows(), to),
        scratch(p, tiles, tiles.rows * from, tiles.rows * tiles.cols) {}
  int64_t bytes(const Problem& p) const { return tiles.parts() * scratch.elements() * real_bytes(p); }
};

template <class T>
void map_rows(const Call& call, bool backward) {
  const MapPlan plan(call.problem, backward);
  const Sizes& n = plan.n;
  const Rows<const T> x = n.tensor(call.in<T>(0), plan.from);
  const Rows<T> y = n.tensor(call.out<T>(0), plan.to);
  if (plan.from == 0) std::fill_n(y.data, n.rows() * n.experts * plan.to, T{0});
  if (plan.from == 0) return;
  Work work{call};
  plan.tiles.each(call, [&](int64_t part, int64_t expert, int64_t row_tile, int64_t col_tile) {
    T* left = call.workspace<T>() + part * plan.scratch.elements();
    T *right = left + plan.scratch.left, *gemm = right + plan.scratch.right;
    const int64_t row = row_tile * plan.tiles.rows, col = col_tile * plan.tiles.cols;
    const int64_t rows = std::min(plan.tiles.rows, n.rows() - row),
                  cols = std::min(plan.tiles.cols, plan.to - col);
    copy_in(x, expert, row, rows, 0, plan.from, left);
    const T* w = call.in<T>(1) + expert * n.outs * n.ins + (backward ? col : col * n.ins);
    work.multiply({rows, cols, plan.from, left, plan.from, false, w, n.ins, !backward, right, cols, false},
                  gemm);
    copy_out(right, y, expert, row, rows, col, cols);
  });
  work.check();
}

template <class T>
void grouped_linear(const Call& call) {
  map_rows<T>(call, false);
}

template <class T>
void grouped_linear_dgrad(const Call& call) {
  map_rows<T>(call, true);
}

struct WgradPlan {
  Sizes n;
  Tiles tiles;      // of [outs, ins]
  Scratch scratch;  // left: columns of dy; right: columns of x

  explicit WgradPlan(const Problem& p)
      : n(p),
        tiles(n.experts, n.outs, n.ins),
        scratch(p, tiles, std::min(kSumRows, n.rows()) * tiles.rows,
                std::min(kSumRows, n.rows()) * tiles.cols) {}
  int64_t bytes(const Problem& p) const { return tiles.parts() * scratch.elements() * real_bytes(p); }
};

// dw[O,K] (+)= sum over the expert's rows of dy^T x
template <class T>
void grouped_linear_wgrad(const Call& call) {
  const WgradPlan plan(call.problem);
  const Sizes& n = plan.n;
  const Rows<const T> dy = n.tensor(call.in<T>(0), n.outs), x = n.tensor(call.in<T>(1), n.ins);
  T* dw = call.out<T>(0);
  if (n.rows() == 0 && !call.problem.accumulate()) std::fill_n(dw, n.experts * n.outs * n.ins, T{0});
  Work work{call};
  plan.tiles.each(call, [&](int64_t part, int64_t expert, int64_t out_tile, int64_t in_tile) {
    T* left = call.workspace<T>() + part * plan.scratch.elements();
    T *right = left + plan.scratch.left, *gemm = right + plan.scratch.right;
    const int64_t out = out_tile * plan.tiles.rows, in = in_tile * plan.tiles.cols;
    const int64_t outs = std::min(plan.tiles.rows, n.outs - out), ins = std::min(plan.tiles.cols, n.ins - in);
    for (int64_t row = 0; row < n.rows(); row += kSumRows) {
      const int64_t rows = std::min(kSumRows, n.rows() - row);
      copy_in(dy, expert, row, rows, out, outs, left);
      copy_in(x, expert, row, rows, in, ins, right);
      work.multiply({outs, ins, rows, left, outs, true, right, ins, false,
                     dw + (expert * n.outs + out) * n.ins + in, n.ins, row > 0 || call.problem.accumulate()},
                    gemm);
    }
  });
  work.check();
}

constexpr Entry kOps[] = {
    {"grouped_linear", grouped_linear<float>, grouped_linear<double>, nullptr, nullptr,
     [](const Problem& p) { return MapPlan(p, false).bytes(p); }},
    {"grouped_linear_dgrad", grouped_linear_dgrad<float>, grouped_linear_dgrad<double>, nullptr, nullptr,
     [](const Problem& p) { return MapPlan(p, true).bytes(p); }},
    {"grouped_linear_wgrad", grouped_linear_wgrad<float>, grouped_linear_wgrad<double>, nullptr, nullptr,
     [](const Problem& p) { return WgradPlan(p).bytes(p); }},
};

}  // namespace

std::span<const Entry> grouped_linear_ops() { return kOps; }

}  // namespace tenon::kernels::cpu
