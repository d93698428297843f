// linear, bias_add and their gradients, and bias_gelu. Each element of a product is one sum in order, so its
// bits depend on neither threads nor tiles.
#include "product.h"
#include "reduce.h"

namespace tenon::kernels::cpu {
namespace {

struct Sizes {
  int64_t rows, outs, ins;
  explicit Sizes(const Problem& p)
      : rows(p.size("b") * p.size("s")), outs(p.size("o..")), ins(p.size("k..")) {}
};

template <class T>
void multiply(const Call& call, int64_t m, int64_t n, int64_t k, bool a_transposed, bool b_transposed) {
  product<T>(call, {m, n, k, call.in<T>(0), a_transposed, call.in<T>(1), b_transposed, call.out<T>(0),
                    call.problem.accumulate(), call.workspace<T>()});
}

// y[M,N] = x[M,K] w[N,K]^T
template <class T>
void linear(const Call& call) {
  const Sizes n(call.problem);
  multiply<T>(call, n.rows, n.outs, n.ins, false, true);
}

// dx[M,K] (+)= dy[M,N] w[N,K]
template <class T>
void linear_dgrad(const Call& call) {
  const Sizes n(call.problem);
  multiply<T>(call, n.rows, n.ins, n.outs, false, false);
}

// dw[N,K] (+)= dy[M,N]^T x[M,K]
template <class T>
void linear_wgrad(const Call& call) {
  const Sizes n(call.problem);
  multiply<T>(call, n.outs, n.ins, n.rows, true, false);
}

template <class T>
void bias_add(const Call& call) {
  const int64_t width = call.size("o..");
  call.rows(call.size("b") * call.size("s"), width, [&](int64_t row, int64_t n) {
    call.loops<T>().bias_add(call.in<T>(0) + row * width, call.in<T>(1), call.out<T>(0) + row * width, n,
                             width);
  });
}

// By rows, which are still in the first cache for the second loop.
template <class T>
void bias_gelu(const Call& call) {
  const int64_t width = call.size("o..");
  const Loops<T>& loops = call.loops<T>();
  const ElementLoop<T>& gelu = call.element_loop<T>("gelu");
  call.rows(call.size("b") * call.size("s"), width, [&](int64_t begin, int64_t n) {
    for (int64_t at = begin * width; at < (begin + n) * width; at += width) {
      loops.bias_add(call.in<T>(0) + at, call.in<T>(1), call.out<T>(0) + at, 1, width);
      const T* z = call.out<T>(0) + at;
      T* y = call.out<T>(1) + at;
      gelu.run(&z, &y, nullptr, width);
    }
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
     [](const Problem& p) {
       return product_bytes(p, Sizes(p).rows, Sizes(p).outs, Sizes(p).ins, false, true);
     }},
    {"linear_dgrad", linear_dgrad<float>, linear_dgrad<double>, nullptr, nullptr,
     [](const Problem& p) {
       return product_bytes(p, Sizes(p).rows, Sizes(p).ins, Sizes(p).outs, false, false);
     }},
    {"linear_wgrad", linear_wgrad<float>, linear_wgrad<double>, nullptr, nullptr,
     [](const Problem& p) {
       return product_bytes(p, Sizes(p).outs, Sizes(p).ins, Sizes(p).rows, true, false);
     }},
    {"bias_add", bias_add<float>, bias_add<double>},
    {"bias_gelu", bias_gelu<float>, bias_gelu<double>},
    {"bias_wgrad", bias_wgrad<float>, bias_wgrad<double>, nullptr, nullptr,
     [](const Problem& p) { return partial_bytes(p, p.size("b") * p.size("s"), p.size("o.."), 1); }},
};

}  // namespace

std::span<const Entry> linear_ops() { return kOps; }

}  // namespace tenon::kernels::cpu
