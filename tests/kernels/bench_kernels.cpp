// Time of one call of each kernel of kernels/cpu on one thread, at the sizes of a 3M-parameter GPT and of
// GPT-2 124M. Not a test. Arguments: the instruction set (auto).
#include <chrono>
#include <cstdio>
#include <map>

#include "cases.h"

using namespace tenon::test;

namespace {

// Multiply-adds per second of one core with the widest vectors, all in registers.
#if defined(__x86_64__)
__attribute__((target("avx512f,fma"))) double peak_flops() {
  typedef float V __attribute__((vector_size(64)));
  V x = V{} + 1.000001f, y = V{} + 0.5f;
  asm volatile("" : "+v"(x), "+v"(y));
  double best = 0;
  for (int trial = 0; trial < 20; ++trial) {
    const auto start = std::chrono::steady_clock::now();
    V sum[12] = {};
    for (V& s : sum) asm volatile("" : "+v"(s));
    for (int i = 0; i < 200000; ++i) {
#pragma GCC unroll 12
      for (int j = 0; j < 12; ++j) sum[j] = sum[j] * x + y;
    }
    for (const V& s : sum) asm volatile("" : : "v"(s));
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::max(best, 200000.0 * 12 * 16 * 2 / time.count());
  }
  return best;
}
#endif

struct Model {
  const char* name;
  Size size;  // h: width, v: vocabulary, t = s: context
};

void report(const Kernels& kernels, const std::string& name, const Op& op, double flops, double peak) {
  const double time = kernels.seconds(op, 15);
  double bytes = 0;
  for (const Tensor& t : op.in) bytes += static_cast<double>(t.bytes().size());
  for (const Tensor& t : op.out) bytes += static_cast<double>(t.bytes().size());
  std::printf("  %-34s %9.1f us  %6.1f GB/s", name.c_str(), time * 1e6, bytes / time * 1e-9);
  if (flops > 0)
    std::printf("  %7.1f GFLOP/s (%3.0f%% of peak)", flops / time * 1e-9, 100 * flops / time / peak);
  std::printf("\n");
}

void products(const Kernels& kernels, CaseMaker& make, const Size& n, double peak) {
  for (const auto& [ins, outs] : {std::pair{n.h, n.h}, {n.h, 4 * n.h}, {4 * n.h, n.h}, {n.h, n.v}}) {
    const Tensor x = make.random({n.b, n.s, ins}), w = make.random({outs, ins}, 0.02),
                 y = make.random({n.b, n.s, outs});
    const double flops = 2.0 * static_cast<double>(n.b * n.s * ins * outs);
    const std::string sizes = " " + std::to_string(ins) + " -> " + std::to_string(outs);
    report(kernels, "linear" + sizes, {"linear", {x, w}, {y}, {}}, flops, peak);
    report(kernels, "linear_dgrad" + sizes, {"linear_dgrad", {y, w}, {x}, {}}, flops, peak);
    report(kernels, "linear_wgrad" + sizes, {"linear_wgrad", {y, x}, {w}, {}, TENON_KERNEL_ACCUMULATE}, flops,
           peak);
  }
}

void bench(const Kernels& kernels, const Model& model, double peak) {
  const Kernels reference("cpu", 0, "auto");  // makes the operands of backward ops
  const Size& n = model.size;
  CaseMaker make(reference, TENON_F32, n, 1);
  std::printf("%s: batch %ld, context %ld, width %ld\n", model.name, long{n.b}, long{n.s}, long{n.h});
  products(kernels, make, n, peak);
  const double pairs =
      static_cast<double>(n.b * n.g * n.r) * static_cast<double>(n.s) * static_cast<double>(n.t + 1) / 2;
  const std::map<std::string, double> flops = {{"attention", 4 * pairs * static_cast<double>(n.d)},
                                               {"attention_dgrad", 10 * pairs * static_cast<double>(n.d)}};
  for (const Op& op : {make.embedding(), make.layernorm(), make.rmsnorm(), make.bias_add(), make.rope(false),
                       make.attention(CaseMaker::Positions::causal), make.gelu(), make.swiglu(),
                       make.dropout(0.1), make.cross_entropy(0)}) {
    report(kernels, op.kind, op, flops.contains(op.kind) ? flops.at(op.kind) : 0, peak);
    for (const Op& back : make.backward(op, make.random(op.out[0].dims()))) {
      report(kernels, back.kind, back, flops.contains(back.kind) ? flops.at(back.kind) : 0, peak);
    }
  }
  const Tensor x = make.random({n.b, n.s, n.h});
  report(kernels, "add", {"add", {x, x}, {x}, {}}, 0, peak);
  report(kernels, "sqnorm", {"sqnorm", {x}, {Tensor(TENON_F64, {})}, {}}, 0, peak);
}

}  // namespace

int main(int argc, char** argv) {
  double peak = 1;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) peak = peak_flops();
#endif
  std::printf("peak of one core: %.1f GFLOP/s (f32)\n", peak * 1e-9);
  const Kernels kernels("cpu", 0, argc > 1 ? argv[1] : "auto");
  bench(kernels, {"3M", {8, 256, 256, 192, 256, 6, 1, 32}}, peak);
  bench(kernels, {"GPT-2 124M", {4, 256, 256, 768, 50257, 12, 1, 64}}, peak);
}
