// schedule/zb-h1: 1F1B with weight gradients apart, which fill what would be idle. A third of its bubble,
// within its memory (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", ZB-H1).
#include "tenon_sdk/schedule.hpp"

namespace {

using namespace tenon::sdk;

ScheduleRows rows(const ScheduleConfig& config) {
  require_stages_per_rank(config, 1, ", or use schedule/zb-v for two on each");
  ScheduleRows order;
  for (int32_t stage = 0; stage < config.stages; ++stage) {
    RankRows forwards, input_grads;
    for (int32_t mb = 0; mb < config.microbatches; ++mb) {
      forwards.push_back({TENON_ROW_FORWARD, stage, mb, 0});
      input_grads.push_back({TENON_ROW_INPUT_GRAD, stage, mb, 0});
    }
    const int32_t ranks_behind = config.ranks - 1 - stage;
    order.push_back(one_forward_one_backward(static_cast<size_t>(ranks_behind), forwards, input_grads));
  }
  return fill_weight_grads(config, std::move(order), config.ranks);
}

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = schedule_plugin<round_owner, rows>(
    "schedule/zb-h1", "0.1.0", "Pipeline schedule: 1F1B whose weight gradients fill the bubble (ZB-H1)");
