// parallel/context: context parallelism. Cuts the sequence of every input over one mesh axis, and says how
// attention, which alone looks across the cut, gets what it needs.
#include "tenon_sdk/pass.hpp"

namespace {

using namespace tenon::sdk;

constexpr std::string_view kAttention = "attention";
constexpr uint32_t kSeq = 1, kGroup = 2;  // dims of q, k, v and the output: [batch, seq, group, ...]

void cut_inputs(PassGraph& graph, const std::string& axis) {
  bool any = false;
  for (const PassValue& input : graph.values(TENON_ROLE_INPUT)) {
    const auto seq = input.find("seq");
    if (!seq) continue;
    graph.shard(input.id, *seq, axis);
    any = true;
  }
  if (!any) throw Failure(TENON_E_ARGUMENT, "no input of the model has a dimension named 'seq'");
}

// Within attention the heads are cut instead of the sequence (Jacobs et al., "DeepSpeed-Ulysses", 2023).
void cut_heads(PassGraph& graph, tenon_op_id op, const std::string& axis) {
  const int64_t size = graph.axis_size(axis);
  const auto inputs = graph.inputs(op);
  for (size_t i = 0; i < 3; ++i) {  // q, k, v
    const PassValue value = graph.value(inputs[i]);
    if (value.dims[kGroup].size % size != 0) {
      throw Failure(TENON_E_RECIPE, "'" + value.name + "': " + std::to_string(value.dims[kGroup].size) +
                                        " groups of heads are not divisible by " + axis + " " +
                                        std::to_string(size) + ": use exchange = \"ring\"");
    }
    graph.shard(value.id, kGroup, axis);
  }
  graph.shard(graph.outputs(op)[0], kSeq, axis);
}

void run(PassGraph& graph, const Options& options) {
  const std::string axis = options.string("axis"), exchange = options.string("exchange");
  graph.axis_size(axis);
  cut_inputs(graph, axis);
  for (tenon_op_id op : graph.ops()) {
    if (graph.kind(op) != kAttention) continue;
    if (exchange == "ring") graph.substitute(op, "attention_ring");
    if (exchange == "all_to_all") cut_heads(graph, op, axis);
  }
}

constexpr tenon_option_decl kAxis = string_option("axis", "mesh axis that sequences are cut over", "cp");
constexpr tenon_option_decl kExchange =
    string_option("exchange",
                  "ring: keys and values travel in blocks; all_gather: everyone gets all of them; "
                  "all_to_all: heads instead of "
                  "sequence within attention",
                  "ring", "ring|all_gather|all_to_all");
constexpr const tenon_option_decl* kOptions[] = {&kAxis, &kExchange};

constexpr tenon_pass kPass = make_pass<run>(TENON_PHASE_A, "cp", "context");

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = plugin_with<TENON_PASS, kPass>(
    "parallel/context", "0.1.0", "Context parallelism: cuts sequences over a mesh axis", kOptions);
