// layernorm, rmsnorm and their gradients.
#include "reduce.h"

namespace tenon::kernels::cpu {
namespace {

int64_t tokens(const Problem& p) { return p.size("b") * p.size("s"); }

template <class T>
void layernorm(const Call& call) {
  const int64_t width = call.size("h");
  const double eps = call.problem.number("eps");
  call.rows(tokens(call.problem), width, [&](int64_t row, int64_t n) {
    call.loops<T>().layernorm(call.in<T>(0) + row * width, call.in<T>(1), call.in<T>(2),
                              call.out<T>(0) + row * width, call.out<T>(1) + row, call.out<T>(2) + row, n,
                              width, eps);
  });
}

// norm(row) of each row of z = x + y, which is then in the first cache.
template <class T, class Norm>
void add_rows(const Call& call, Norm&& norm) {
  const int64_t width = call.size("h");
  call.rows(tokens(call.problem), width, [&](int64_t begin, int64_t n) {
    for (int64_t row = begin; row < begin + n; ++row) {
      const int64_t at = row * width;
      call.loops<T>().add(call.in<T>(0) + at, call.in<T>(1) + at, call.out<T>(0) + at, width);
      norm(row, call.out<T>(0) + at, call.out<T>(1) + at);
    }
  });
}

template <class T>
void add_layernorm(const Call& call) {
  const int64_t width = call.size("h");
  const double eps = call.problem.number("eps");
  add_rows<T>(call, [&](int64_t row, const T* z, T* n) {
    call.loops<T>().layernorm(z, call.in<T>(2), call.in<T>(3), n, call.out<T>(2) + row, call.out<T>(3) + row,
                              1, width, eps);
  });
}

template <class T>
void add_rmsnorm(const Call& call) {
  const int64_t width = call.size("h");
  const double eps = call.problem.number("eps");
  add_rows<T>(call, [&](int64_t row, const T* z, T* n) {
    call.loops<T>().rmsnorm(z, call.in<T>(2), n, call.out<T>(2) + row, 1, width, eps);
  });
}

template <class T>
void layernorm_dgrad(const Call& call) {
  const int64_t width = call.size("h");
  call.rows(tokens(call.problem), width, [&](int64_t row, int64_t n) {
    call.loops<T>().layernorm_dgrad(call.in<T>(0) + row * width, call.in<T>(1) + row * width, call.in<T>(2),
                                    call.in<T>(3) + row, call.in<T>(4) + row, call.out<T>(0) + row * width, n,
                                    width, call.problem.accumulate());
  });
}

template <class T>
void layernorm_wgrad(const Call& call) {
  const int64_t width = call.size("h"), rows = tokens(call.problem);
  const Chunks chunks(rows);
  T* partial = call.workspace<T>();
  call.ranges(rows, chunks.rows, [&](int64_t row, int64_t n) {
    T* dw = partial + row / chunks.rows * 2 * width;
    call.loops<T>().layernorm_wgrad(call.in<T>(0) + row * width, call.in<T>(1) + row * width,
                                    call.in<T>(2) + row, call.in<T>(3) + row, dw, dw + width, n, width);
  });
  combine_partials(call, partial, chunks.count, 2 * width, call.out<T>(0), width);
  combine_partials(call, partial + width, chunks.count, 2 * width, call.out<T>(1), width);
}

template <class T>
void rmsnorm(const Call& call) {
  const int64_t width = call.size("h");
  const double eps = call.problem.number("eps");
  call.rows(tokens(call.problem), width, [&](int64_t row, int64_t n) {
    call.loops<T>().rmsnorm(call.in<T>(0) + row * width, call.in<T>(1), call.out<T>(0) + row * width,
                            call.out<T>(1) + row, n, width, eps);
  });
}

template <class T>
void rmsnorm_dgrad(const Call& call) {
  const int64_t width = call.size("h");
  call.rows(tokens(call.problem), width, [&](int64_t row, int64_t n) {
    call.loops<T>().rmsnorm_dgrad(call.in<T>(0) + row * width, call.in<T>(1) + row * width, call.in<T>(2),
                                  call.in<T>(3) + row, call.out<T>(0) + row * width, n, width,
                                  call.problem.accumulate());
  });
}

template <class T>
void rmsnorm_wgrad(const Call& call) {
  const int64_t width = call.size("h"), rows = tokens(call.problem);
  const Chunks chunks(rows);
  T* partial = call.workspace<T>();
  call.ranges(rows, chunks.rows, [&](int64_t row, int64_t n) {
    call.loops<T>().rmsnorm_wgrad(call.in<T>(0) + row * width, call.in<T>(1) + row * width,
                                  call.in<T>(2) + row, partial + row / chunks.rows * width, n, width);
  });
  combine_partials(call, partial, chunks.count, width, call.out<T>(0), width);
}

constexpr Entry kOps[] = {
    {"layernorm", layernorm<float>, layernorm<double>},
    {"add_layernorm", add_layernorm<float>, add_layernorm<double>},
    {"layernorm_dgrad", layernorm_dgrad<float>, layernorm_dgrad<double>},
    {"layernorm_wgrad", layernorm_wgrad<float>, layernorm_wgrad<double>, nullptr, nullptr,
     [](const Problem& p) { return partial_bytes(p, tokens(p), p.size("h"), 2); }},
    {"rmsnorm", rmsnorm<float>, rmsnorm<double>},
    {"add_rmsnorm", add_rmsnorm<float>, add_rmsnorm<double>},
    {"rmsnorm_dgrad", rmsnorm_dgrad<float>, rmsnorm_dgrad<double>},
    {"rmsnorm_wgrad", rmsnorm_wgrad<float>, rmsnorm_wgrad<double>, nullptr, nullptr,
     [](const Problem& p) { return partial_bytes(p, tokens(p), p.size("h"), 1); }},
};

}  // namespace

std::span<const Entry> norm_ops() { return kOps; }

}  // namespace tenon::kernels::cpu
