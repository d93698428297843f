// parallel/data: data parallelism. Says that the batch of every input is cut over one mesh axis; propagation,
// the gradients' reductions and the loss's follow from that in the core.
#include <string>
#include <vector>

#include "tenon/draft/pass.h"
#include "tenon/plugin.h"
#include "tenon_sdk/plugin.hpp"

namespace {

using tenon::sdk::Failure;
using tenon::sdk::guard;

constexpr std::string_view kBatch = "batch";

// Where an input's batch dimension is.
struct BatchInput {
  tenon_value_id value;
  uint32_t dim;
};

// All are found before the first is annotated, because annotating ends the life of what the graph lent.
tenon_code find_batch_inputs(const tenon_graph_api& api, tenon_graph* graph, std::vector<BatchInput>& found,
                             tenon_error* error) {
  const tenon_value_id* values = nullptr;
  const uint32_t num_values = api.values(graph, &values);
  for (uint32_t i = 0; i < num_values; ++i) {
    tenon_value_info info{};
    info.struct_size = sizeof info;
    const tenon_code code = api.value(graph, values[i], &info, error);
    if (code < 0) return code;
    if (info.role != TENON_ROLE_INPUT) continue;
    for (uint32_t dim = 0; dim < info.ndim; ++dim) {
      if (info.dim_names[dim] != nullptr && info.dim_names[dim] == kBatch) found.push_back({values[i], dim});
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
    std::vector<BatchInput> inputs;
    const tenon_code found = find_batch_inputs(api, graph, inputs, error);
    if (found < 0) return found;
    if (inputs.empty())
      throw Failure(TENON_E_ARGUMENT, "no input of the model has a dimension named 'batch'");
    for (const BatchInput& input : inputs) {
      const tenon_code code = api.shard(graph, input.value, input.dim, axis.c_str(), error);
      if (code < 0) return code;
    }
    return TENON_OK;
  });
}

constexpr tenon_option_decl kAxis = {sizeof(tenon_option_decl),
                                     TENON_STRING,
                                     "axis",
                                     "mesh axis that the batch is cut over",
                                     "dp",
                                     nullptr,
                                     1.0,
                                     0.0};
constexpr const tenon_option_decl* kOptions[] = {&kAxis};

constexpr tenon_pass kTable = {sizeof(tenon_pass), TENON_PHASE_A, "dp", nullptr, nullptr, nullptr, run};

tenon_code init(const tenon_host*, tenon_error*) { return TENON_OK; }

void deinit() {}

const void* get_interface(const char* id) { return std::strcmp(id, TENON_PASS) == 0 ? &kTable : nullptr; }

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = {
    sizeof(tenon_plugin),
    TENON_ABI_MAJOR,
    TENON_ABI_MINOR,
    TENON_ABI_MINOR,
    "parallel/data",
    "0.1.0",
    "Data parallelism: cuts the batch of every input over a mesh axis",
    kOptions,
    std::size(kOptions),
    init,
    deinit,
    get_interface};
