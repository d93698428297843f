// parallel/expert: expert parallelism. Says that the experts' weights are cut by expert over one mesh axis;
// the exchange of tokens in front of and behind the experts follows from that in the core.
#include "tenon_sdk/pass.hpp"

namespace {

using namespace tenon::sdk;

// The weights that a grouped_linear reads. A router's weight has an expert dim as well, but is read by
// another op: it stays whole, for every token asks every expert.
std::vector<tenon_value_id> grouped_weights(const PassGraph& graph) {
  std::vector<tenon_value_id> found;
  for (tenon_op_id op : graph.ops()) {
    if (graph.kind(op) != "grouped_linear") continue;
    const tenon_value_id weight = graph.inputs(op).at(1);
    if (std::find(found.begin(), found.end(), weight) == found.end()) found.push_back(weight);
  }
  return found;
}

void run(PassGraph& graph, const Options& options) {
  const std::string axis = options.string("axis");
  graph.axis_size(axis);
  bool any = false;
  for (tenon_value_id id : grouped_weights(graph)) {
    const PassValue weight = graph.value(id);
    const auto expert = weight.find("expert");
    if (weight.role != TENON_ROLE_PARAM || !expert) continue;
    graph.shard(id, *expert, axis);
    any = true;
  }
  if (any) return;
  throw Failure(
      TENON_E_ARGUMENT,
      "the model has no experts (no grouped_linear has a weight with a dimension named 'expert'): remove the "
      "strategy, or use a model that has some");
}

constexpr tenon_option_decl kAxis = string_option("axis", "mesh axis that the experts are cut over", "dp");
constexpr const tenon_option_decl* kOptions[] = {&kAxis};

// Experts use an axis that another strategy defines: ranks are not cut once more for them.
constexpr tenon_pass kPass = make_pass<run>(TENON_PHASE_A, nullptr, "expert");

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = plugin_with<TENON_PASS, kPass>(
    "parallel/expert", "0.1.0", "Expert parallelism: cuts the weights of experts over a mesh axis", kOptions);
