// parallel/data: data parallelism. Says that the batch of every input is cut over one mesh axis; propagation,
// the gradients' reductions and the loss's follow from that in the core.
#include "tenon_sdk/pass.hpp"

namespace {

using namespace tenon::sdk;

void run(PassGraph& graph, const Options& options) {
  const std::string axis = options.string("axis");
  graph.axis_size(axis);
  bool any = false;
  for (const PassValue& input : graph.values(TENON_ROLE_INPUT)) {
    const auto batch = input.find("batch");
    if (!batch) continue;
    graph.shard(input.id, *batch, axis);
    any = true;
  }
  if (!any) throw Failure(TENON_E_ARGUMENT, "no input of the model has a dimension named 'batch'");
}

constexpr tenon_option_decl kAxis = string_option("axis", "mesh axis that the batch is cut over", "dp");
constexpr const tenon_option_decl* kOptions[] = {&kAxis};

constexpr tenon_pass kPass = make_pass<run>(TENON_PHASE_A, "dp", "data");

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = plugin_with<TENON_PASS, kPass>(
    "parallel/data", "0.1.0", "Data parallelism: cuts the batch of every input over a mesh axis", kOptions);
