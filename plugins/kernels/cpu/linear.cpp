// linear, bias_add and their gradients. Products are cut into tiles of C that depend on m and n alone and
// never along the sum, so that their bits do not depend on threads.
#include <dnnl.h>
#include <omp.h>

#include <atomic>
#include <cstring>

#include "reduce.h"

namespace tenon::kernels::cpu {
namespace {

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

struct Tiles {
  int64_t m, n;        // elements of a tile
  int64_t rows, cols;  // number of tiles

  // Starts from what keeps oneDNN fast (wide rather than high) and cuts until there is enough to share.
  Tiles(int64_t m_total, int64_t n_total) : m(256), n(192) {
    constexpr int64_t kEnough = 6, kLeast = 96;
    m = std::min(m, round_up(m_total, 16));
    n = std::min(n, round_up(n_total, 16));
    while (true) {
      rows = (m_total + m - 1) / m;
      cols = (n_total + n - 1) / n;
      int64_t& side = m >= 2 * kLeast ? m : n;
      if (rows * cols >= kEnough || side < 2 * kLeast) break;
      side = round_up(side / 2, 16);
    }
  }
  int64_t count() const { return rows * cols; }
};

// oneDNN works on the calling thread only while this lives: plugins own no threads.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// Scratch of products in double: one piece per part, and parts take turns over tiles.
constexpr int64_t kParts = 32;

int64_t product_bytes(const Problem& problem, int64_t m, int64_t n) {
  if (problem.dtype() != TENON_F64) return 0;
  if (m == 0 || n == 0) return 0;
  const Tiles tiles(m, n);
  return std::min(kParts, tiles.count()) * gemm_scratch(tiles.m, tiles.n) * 8;
}

void multiply(const Call& call, const Product<float>& p) {
  const Tiles tiles(p.m, p.n);
  const float beta = call.problem.accumulate() ? 1.0f : 0.0f;
  const int64_t lda = p.a_transposed ? p.m : p.k, ldb = p.b_transposed ? p.k : p.n;
  std::atomic<int> failed{dnnl_success};
  call.parallel(tiles.count(), [&](int64_t tile) {
    const int64_t i = tile / tiles.cols * tiles.m, j = tile % tiles.cols * tiles.n;
    const OneThread one;
    const dnnl_status_t status =
        dnnl_sgemm(p.a_transposed ? 'T' : 'N', p.b_transposed ? 'T' : 'N', std::min(tiles.m, p.m - i),
                   std::min(tiles.n, p.n - j), p.k, 1.0f, p.a + (p.a_transposed ? i : i * lda), lda,
                   p.b + (p.b_transposed ? j * ldb : j), ldb, beta, p.c + i * p.n + j, p.n);
    if (status != dnnl_success) failed = status;
  });
  if (failed != dnnl_success) {
    throw sdk::Failure(failed == dnnl_out_of_memory ? TENON_E_MEMORY : TENON_E_DEVICE,
                       std::string(call.problem.kind()) + ": dnnl_sgemm failed", "onednn", failed);
  }
}

void multiply(const Call& call, const Product<double>& p) {
  const Tiles tiles(p.m, p.n);
  const int64_t parts = std::min(kParts, tiles.count()), scratch = gemm_scratch(tiles.m, tiles.n);
  call.parallel(parts, [&](int64_t part) {
    for (int64_t tile = part; tile < tiles.count(); tile += parts) {
      const int64_t i = tile / tiles.cols * tiles.m, j = tile % tiles.cols * tiles.n;
      call.loops<double>().gemm({.m = std::min(tiles.m, p.m - i),
                                 .n = std::min(tiles.n, p.n - j),
                                 .k = p.k,
                                 .a = p.a + (p.a_transposed ? i : i * p.k),
                                 .a_row = p.a_transposed ? 1 : p.k,
                                 .a_col = p.a_transposed ? p.m : 1,
                                 .b = p.b + (p.b_transposed ? j * p.k : j),
                                 .b_row = p.b_transposed ? 1 : p.n,
                                 .b_col = p.b_transposed ? p.k : 1,
                                 .c = p.c + i * p.n + j,
                                 .ldc = p.n,
                                 .add = call.problem.accumulate(),
                                 .scratch = call.workspace<double>() + part * scratch});
    }
  });
}

template <class T>
void product(const Call& call, const Product<T>& p) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k > 0) {
    multiply(call, p);
  } else if (!call.problem.accumulate()) {
    std::fill_n(p.c, p.m * p.n, T{0});
  }
}

struct Sizes {
  int64_t rows, outs, ins;
  explicit Sizes(const Problem& p)
      : rows(p.size("b") * p.size("s")), outs(p.size("o..")), ins(p.size("k..")) {}
};

// y[M,N] = x[M,K] w[N,K]^T
template <class T>
void linear(const Call& call) {
  const Sizes n(call.problem);
  product<T>(call, {n.rows, n.outs, n.ins, call.in<T>(0), false, call.in<T>(1), true, call.out<T>(0)});
}

// dx[M,K] = dy[M,N] w[N,K]
template <class T>
void linear_dgrad(const Call& call) {
  const Sizes n(call.problem);
  product<T>(call, {n.rows, n.ins, n.outs, call.in<T>(0), false, call.in<T>(1), false, call.out<T>(0)});
}

// dw[N,K] (+)= dy[M,N]^T x[M,K]
template <class T>
void linear_wgrad(const Call& call) {
  const Sizes n(call.problem);
  product<T>(call, {n.outs, n.ins, n.rows, call.in<T>(0), true, call.in<T>(1), false, call.out<T>(0)});
}

template <class T>
void bias_add(const Call& call) {
  const int64_t width = call.size("o..");
  call.rows(call.size("b") * call.size("s"), width, [&](int64_t row, int64_t n) {
    call.loops<T>().bias_add(call.in<T>(0) + row * width, call.in<T>(1), call.out<T>(0) + row * width, n,
                             width);
  });
}

template <class T>
void bias_wgrad(const Call& call) {
  const int64_t width = call.size("o.."), rows = call.size("b") * call.size("s");
  const Chunks chunks(rows);
  T* partial = call.workspace<T>();
  call.ranges(rows, chunks.rows, [&](int64_t row, int64_t n) {
    call.loops<T>().sum_rows(call.in<T>(0) + row * width, partial + row / chunks.rows * width, n, width);
  });
  combine_partials(call, partial, chunks.count, width, call.out<T>(0), width);
}

constexpr Entry kOps[] = {
    {"linear", linear<float>, linear<double>, nullptr, nullptr,
     [](const Problem& p) { return product_bytes(p, Sizes(p).rows, Sizes(p).outs); }},
    {"linear_dgrad", linear_dgrad<float>, linear_dgrad<double>, nullptr, nullptr,
     [](const Problem& p) { return product_bytes(p, Sizes(p).rows, Sizes(p).ins); }},
    {"linear_wgrad", linear_wgrad<float>, linear_wgrad<double>, nullptr, nullptr,
     [](const Problem& p) { return product_bytes(p, Sizes(p).outs, Sizes(p).ins); }},
    {"bias_add", bias_add<float>, bias_add<double>},
    {"bias_wgrad", bias_wgrad<float>, bias_wgrad<double>, nullptr, nullptr,
     [](const Problem& p) { return partial_bytes(p, p.size("b") * p.size("s"), p.size("o.."), 1); }},
};

}  // namespace

std::span<const Entry> linear_ops() { return kOps; }

}  // namespace tenon::kernels::cpu
