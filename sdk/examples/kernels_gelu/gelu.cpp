// kernels/gelu - one op and its gradient for the CPU. All other kinds stay with the plugin that a recipe
// names first:
//   kernels = { "kernels/cpu", overrides = { gelu = "kernels/gelu", gelu_dgrad = "kernels/gelu" } }
#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "tenon_sdk/cpu_kernels.hpp"

namespace {

using tenon::kernels::CpuCall;
using tenon::kernels::CpuKernels;
using tenon::kernels::CpuOp;

struct Device {
  explicit Device(const tenon_kernels_config& config) : threads(tenon::sdk::threads_of(config.host)) {}
  const tenon_parallel* threads;
};
struct Call : CpuCall<Device> {};

// Each element by itself, so that neither parts nor threads change a bit: what TENON_KERNEL_EXACT promises.
template <class Element>
void each_element(const Call& call, Element&& element) {
  constexpr int64_t kPart = 8192;
  const int64_t n = call.problem.outputs()[0].elements();
  tenon::sdk::parallel_for(call.device.threads, (n + kPart - 1) / kPart, [&](int64_t part) {
    const int64_t end = std::min(n, (part + 1) * kPart);
    for (int64_t i = part * kPart; i < end; ++i) element(i);
  });
}

// docs/reference/ops.md has y = x/2 (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3). That is x times the
// logistic function of 2u: one exponential.
constexpr double kScale = 1.5957691216057308;  // 2 sqrt(2/pi)
constexpr double kCubic = 0.044715;

template <class T>
T logistic(T x) {
  return 1 / (1 + std::exp(-T(kScale) * (x + T(kCubic) * x * x * x)));
}

// y = gelu(x)
template <class T>
void gelu(const Call& call) {
  const T* x = call.in<T>(0);
  T* y = call.out<T>(0);
  each_element(call, [=](int64_t i) { y[i] = x[i] * logistic(x[i]); });
}

// dx = gelu'(x) dy. dx may be the memory of dy.
template <class T>
void gelu_dgrad(const Call& call) {
  const T *dy = call.in<T>(0), *x = call.in<T>(1);
  T* dx = call.out<T>(0);
  each_element(call, [=](int64_t i) {
    const T s = logistic(x[i]);
    dx[i] = dy[i] * (s + x[i] * s * (1 - s) * T(kScale) * (1 + 3 * T(kCubic) * x[i] * x[i]));
  });
}

constexpr CpuOp<Call> kOps[] = {{"gelu", gelu<float>, gelu<double>},
                                {"gelu_dgrad", gelu_dgrad<float>, gelu_dgrad<double>}};

std::span<const CpuOp<Call>> gelu_ops() { return kOps; }

struct Backend {
  static constexpr const char* kId = "kernels/gelu";
  using Device = ::Device;
  using Call = ::Call;
  static constexpr auto ops() { return std::array{gelu_ops}; }
};

constexpr tenon_kernels kTable = CpuKernels<Backend>::table();

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = tenon::sdk::plugin_with<TENON_KERNELS, kTable>(
    Backend::kId, "0.1.0", "GELU and its gradient with one exponential each, beside another kernels plugin");
