// parallel/expert: expert parallelism. Says that the experts' weights are cut by expert over one mesh axis;
// the exchange of tokens in front of and behind the experts follows from that in the core.
#include <algorithm>
#include <string>
#include <vector>

#include "tenon/draft/pass.h"
#include "tenon/plugin.h"
#include "tenon_sdk/plugin.hpp"

namespace {

using tenon::sdk::Failure;
using tenon::sdk::guard;

constexpr std::string_view kExpert = "expert";
constexpr std::string_view kMap = "grouped_linear";  // the op whose weight belongs to experts
constexpr uint32_t kWeight = 1;                      // its operand

struct ExpertWeight {
  tenon_value_id value;
  uint32_t dim;
};

// The values that are weights of experts, each once. A router's weight has an expert dim as well, but is
// read by another op: it stays whole, for every token asks every expert.
std::vector<tenon_value_id> weights_of(const tenon_graph_api& api, tenon_graph* graph) {
  const tenon_op_id* borrowed = nullptr;
  const uint32_t num_ops = api.ops(graph, &borrowed);
  std::vector<tenon_op_id> ops(num_ops);  // the next call ends the loan
  std::copy_n(borrowed, num_ops, ops.begin());
  std::vector<tenon_value_id> found;
  for (tenon_op_id op : ops) {
    if (api.op_kind(graph, op) != kMap) continue;
    const tenon_value_id* inputs = nullptr;
    if (api.op_inputs(graph, op, &inputs) <= kWeight) continue;
    if (std::find(found.begin(), found.end(), inputs[kWeight]) == found.end())
      found.push_back(inputs[kWeight]);
  }
  return found;
}

// All are found before the first is annotated, because annotating ends the life of what the graph lent.
tenon_code find_expert_dims(const tenon_graph_api& api, tenon_graph* graph, std::vector<ExpertWeight>& found,
                            tenon_error* error) {
  for (tenon_value_id value : weights_of(api, graph)) {
    tenon_value_info info{};
    info.struct_size = sizeof info;
    const tenon_code code = api.value(graph, value, &info, error);
    if (code < 0) return code;
    if (info.role != TENON_ROLE_PARAM) continue;
    for (uint32_t dim = 0; dim < info.ndim; ++dim) {
      if (info.dim_names[dim] != nullptr && info.dim_names[dim] == kExpert) found.push_back({value, dim});
    }
  }
  return TENON_OK;
}

tenon_code run(const tenon_pass_config* config, tenon_graph* graph, tenon_error* error) {
  return guard(error, [&]() -> tenon_code {
    const tenon_graph_api& api = *config->api;
    const std::string axis = tenon::sdk::Options(config->options, config->num_options).string("axis");
    if (api.axis_size(graph, axis.c_str()) == 0) {
      throw Failure(TENON_E_ARGUMENT,
                    "the mesh has no axis '" + axis + "': add it to mesh, or set axis to one of its");
    }
    std::vector<ExpertWeight> weights;
    const tenon_code found = find_expert_dims(api, graph, weights, error);
    if (found < 0) return found;
    if (weights.empty()) {
      throw Failure(
          TENON_E_ARGUMENT,
          "the model has no experts: no grouped_linear has a weight with a dimension named 'expert'");
    }
    for (const ExpertWeight& weight : weights) {
      const tenon_code code = api.shard(graph, weight.value, weight.dim, axis.c_str(), error);
      if (code < 0) return code;
    }
    return TENON_OK;
  });
}

constexpr tenon_option_decl kAxis = {sizeof(tenon_option_decl),
                                     TENON_STRING,
                                     "axis",
                                     "mesh axis that the experts are cut over",
                                     "dp",
                                     nullptr,
                                     1.0,
                                     0.0};
constexpr const tenon_option_decl* kOptions[] = {&kAxis};

// Experts use an axis that another strategy defines: a set of ranks is not cut once more for them.
constexpr tenon_pass kTable = {sizeof(tenon_pass), TENON_PHASE_A, nullptr, nullptr, nullptr, nullptr, run};

tenon_code init(const tenon_host*, tenon_error*) { return TENON_OK; }

void deinit() {}

const void* get_interface(const char* id) { return std::strcmp(id, TENON_PASS) == 0 ? &kTable : nullptr; }

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = {
    sizeof(tenon_plugin),
    TENON_ABI_MAJOR,
    TENON_ABI_MINOR,
    TENON_ABI_MINOR,
    "parallel/expert",
    "0.1.0",
    "Expert parallelism: cuts the weights of experts over a mesh axis",
    kOptions,
    std::size(kOptions),
    init,
    deinit,
    get_interface};
