// parallel/zero: lets parameters rest in parts over the axis that the batch is cut over (Rajbhandari, Rasley,
// Ruwase, He, "ZeRO", 2020). The reductions, gathers and the update of parts follow from that in the core.
#include "tenon_sdk/pass.hpp"

namespace {

using namespace tenon::sdk;

void run(PassGraph& graph, const Options& options) {
  const std::string axis = options.string("axis");
  const std::string within = options.string("within");
  graph.axis_size(axis);
  const auto stage = static_cast<uint32_t>(options.integer("stage"));
  for (const PassValue& param : graph.values(TENON_ROLE_PARAM)) graph.store(param.id, stage, axis, within);
}

constexpr tenon_option_decl kAxis = string_option(
    "axis", "mesh axis (or sub-axis, for hierarchical sharding) over which parameters rest in parts", "dp");
constexpr tenon_option_decl kStage =
    int_option("stage", "what is cut: 1 optimizer state, 2 gradients too, 3 parameters too", "1", 1, 3);
constexpr tenon_option_decl kWithin = string_option(
    "within",
    "stage 3: sub-axis within which parameters are gathered; beyond it only gradients and updates travel",
    "");
constexpr const tenon_option_decl* kOptions[] = {&kAxis, &kStage, &kWithin};

constexpr tenon_pass kPass = make_pass<run>(TENON_PHASE_B, nullptr, "zero", "data");

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = plugin_with<TENON_PASS, kPass>(
    "parallel/zero", "0.1.0", "ZeRO: optimizer state, gradients and parameters rest in parts", kOptions);
