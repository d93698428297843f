// kernels/reference: every op as plain loops in double, the judge of every other kernel.

#include "op.h"
#include "tenon/plugin.h"

using namespace tenon::kernels;

namespace {

struct Backend {
  static constexpr const char* kId = "kernels/reference";
  using Device = reference::Device;
  using Call = reference::Call;
  static constexpr auto ops() {
    return std::array{reference::embedding_ops, reference::norm_ops,           reference::linear_ops,
                      reference::attention_ops, reference::elementwise_ops,    reference::dropout_ops,
                      reference::loss_ops,      reference::head_ops,           reference::shape_ops,
                      reference::routing_ops,   reference::grouped_linear_ops, reference::shard_ops};
  }
};

constexpr tenon_kernels kTable = CpuKernels<Backend>::table();

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = tenon::sdk::plugin_with<TENON_KERNELS, kTable>(
    Backend::kId, "0.1.0",
    "Every op as plain loops in double precision on one thread: the judge of other kernels");
