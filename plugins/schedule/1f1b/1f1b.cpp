// schedule/1f1b: one forward, one backward. The same bubble as GPipe, with at most `ranks` microbatches in
// memory (Narayanan et al. 2019, PipeDream; flushed at each step).
#include "tenon_sdk/schedule.hpp"

namespace {

using namespace tenon::sdk;

ScheduleRows rows(const ScheduleConfig& config) {
  require_stages_per_rank(config, 1, ", or use schedule/interleaved");
  ScheduleRows out;
  for (int32_t stage = 0; stage < config.stages; ++stage) {
    RankRows forwards, backwards;
    for (int32_t mb = 0; mb < config.microbatches; ++mb) {
      forwards.push_back({TENON_ROW_FORWARD, stage, mb, 0});
      backwards.push_back({TENON_ROW_BACKWARD, stage, mb, 0});
    }
    const int32_t ranks_behind = config.ranks - 1 - stage;
    out.push_back(one_forward_one_backward(static_cast<size_t>(ranks_behind), forwards, backwards));
  }
  return out;
}

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = schedule_plugin<round_owner, rows>(
    "schedule/1f1b", "0.1.0", "Pipeline schedule: one forward, one backward in turn");
