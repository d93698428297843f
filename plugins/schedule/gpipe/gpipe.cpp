// schedule/gpipe: all forwards, then all backwards.
#include "tenon_sdk/schedule.hpp"

namespace {

using namespace tenon::sdk;

ScheduleRows rows(const ScheduleConfig& config) {
  require_stages_per_rank(config, 1, ", or use schedule/interleaved");
  ScheduleRows out(static_cast<size_t>(config.ranks));
  for (int32_t stage = 0; stage < config.stages; ++stage) {
    RankRows& rank = out[static_cast<size_t>(stage)];
    for (const uint32_t kind : {TENON_ROW_FORWARD, TENON_ROW_BACKWARD}) {
      for (int32_t mb = 0; mb < config.microbatches; ++mb) rank.push_back({kind, stage, mb, 0});
    }
  }
  return out;
}

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = schedule_plugin<round_owner, rows>(
    "schedule/gpipe", "0.1.0", "Pipeline schedule: all forwards, then all backwards");
