// kernels/cpu: fast kernels on the threads of the host. Bits depend on values and shapes alone.
#include "op.h"
#include "tenon/plugin.h"
#include "tenon_sdk/options.hpp"

using namespace tenon;
using namespace tenon::kernels;

namespace {

struct Backend {
  static constexpr const char* kId = "kernels/cpu";
  using Device = cpu::Device;
  using Call = cpu::Call;
  static constexpr auto ops() {
    return std::array{cpu::embedding_ops,   cpu::norm_ops,           cpu::linear_ops, cpu::attention_ops,
                      cpu::elementwise_ops, cpu::loss_ops,           cpu::head_ops,   cpu::shape_ops,
                      cpu::routing_ops,     cpu::grouped_linear_ops, cpu::shard_ops};
  }
};

constexpr tenon_kernels kTable = CpuKernels<Backend>::table();

constexpr tenon_option_decl kIsa =
    tenon::sdk::string_option("isa", "instruction set of the loops; auto: the best that the machine has",
                              "auto", "auto|avx512|avx2|baseline");
constexpr const tenon_option_decl* kOptions[] = {&kIsa};

}  // namespace

cpu::Device::Device(const tenon_kernels_config& config)
    : table(cpu::select_loops(sdk::Options(config).string("isa").c_str())),
      pool(sdk::threads_of(config.host)) {}

extern "C" const tenon_plugin tenon_plugin_v0 = tenon::sdk::plugin_with<TENON_KERNELS, kTable>(
    Backend::kId, "0.1.0", "Every op on the CPU: loops for AVX-512, AVX2 or any machine", kOptions);
