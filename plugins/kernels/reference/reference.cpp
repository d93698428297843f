// kernels/reference: every op as plain loops in double, the judge of every other kernel.
#include <cstring>

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

const void* get_interface(const char* id) { return std::strcmp(id, TENON_KERNELS) == 0 ? &kTable : nullptr; }

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = {
    .struct_size = sizeof(tenon_plugin),
    .abi_major = TENON_ABI_MAJOR,
    .abi_minor_built = TENON_ABI_MINOR,
    .abi_minor_required = TENON_ABI_MINOR,
    .id = Backend::kId,
    .version = "0.1.0",
    .doc = "Every op as plain loops in double precision on one thread: the judge of other kernels",
    .options = nullptr,
    .num_options = 0,
    .init = [](const tenon_host*, tenon_error*) -> tenon_code { return TENON_OK; },
    .deinit = [] {},
    .get_interface = get_interface,
};
