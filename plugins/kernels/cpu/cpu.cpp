// kernels/cpu: fast kernels on the threads of the host. Bits depend on values and shapes alone.
#include <atomic>

#include "op.h"
#include "tenon/plugin.h"
#include "tenon_sdk/options.hpp"

using namespace tenon;
using namespace tenon::kernels;

namespace {

// The host's threads, from init to deinit. The only state outside of devices: the ABI hands the host to
// init() alone.
std::atomic<const tenon_parallel*>& host_pool() {
  static std::atomic<const tenon_parallel*> pool{nullptr};
  return pool;
}

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

tenon_code init(const tenon_host* host, tenon_error*) {
  host_pool() = static_cast<const tenon_parallel*>(host->get_interface(host, TENON_HOST_PARALLEL));
  return TENON_OK;
}
void deinit() { host_pool() = nullptr; }

}  // namespace

cpu::Device::Device(const sdk::Options& options)
    : table(cpu::select_loops(options.string("isa").c_str())), pool(host_pool()) {}

extern "C" const tenon_plugin tenon_plugin_v0 = tenon::sdk::plugin_with<TENON_KERNELS, kTable, init, deinit>(
    Backend::kId, "0.1.0", "Every op on the CPU: loops for AVX-512, AVX2 or any machine", kOptions);
