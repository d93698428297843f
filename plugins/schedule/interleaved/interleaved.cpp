// schedule/interleaved: 1F1B over several stages a rank (Narayanan et al. 2021, Megatron-LM), for any number
// of microbatches.
//
// Microbatches go in groups: a group passes the rank's first stage, then its second, and so on, and backward
// in the reverse order. A group of at least `ranks` microbatches comes round just when the rank is done with
// it. So there are as many groups as that allows, as equal in size as possible, the larger ones first because
// the first decides how many forwards are run ahead. (With a multiple of `ranks` microbatches these are the
// groups of the paper.)
#include "tenon_sdk/schedule.hpp"

namespace {

using namespace tenon::sdk;

std::vector<int32_t> group_sizes(const ScheduleConfig& config) {
  const int32_t groups = std::max(1, config.microbatches / config.ranks);
  std::vector<int32_t> sizes(static_cast<size_t>(groups), config.microbatches / groups);
  for (int32_t i = 0; i < config.microbatches % groups; ++i) ++sizes[static_cast<size_t>(i)];
  return sizes;
}

ScheduleRows rows(const ScheduleConfig& config) {
  const int32_t rounds = config.stages / config.ranks;
  if (rounds < 2 || config.stages % config.ranks != 0) {
    throw Failure(TENON_E_ARGUMENT, std::to_string(config.stages) + " stages on " +
                                        std::to_string(config.ranks) +
                                        " pipeline ranks, but this schedule runs several on each, the same "
                                        "number: set stages to " +
                                        std::to_string(2 * config.ranks) +
                                        " or a higher multiple of the ranks, or use schedule/1f1b for one");
  }
  const std::vector<int32_t> sizes = group_sizes(config);
  ScheduleRows out;
  for (int32_t rank = 0; rank < config.ranks; ++rank) {
    RankRows forwards, backwards;
    int32_t first = 0;
    for (const int32_t size : sizes) {
      for (int32_t round = 0; round < rounds; ++round) {
        const int32_t stage = round * config.ranks + rank;
        const int32_t stage_back = (rounds - 1 - round) * config.ranks + rank;
        for (int32_t mb = first; mb < first + size; ++mb) {
          forwards.push_back({TENON_ROW_FORWARD, stage, mb, 0});
          backwards.push_back({TENON_ROW_BACKWARD, stage_back, mb, 0});
        }
      }
      first += size;
    }
    // Twice the ranks behind, as in Megatron-LM: where transfers took no time once would do.
    const int32_t ranks_behind = config.ranks - 1 - rank;
    const int32_t warmup = (rounds - 1) * sizes.front() + 2 * ranks_behind;
    out.push_back(one_forward_one_backward(static_cast<size_t>(warmup), forwards, backwards));
  }
  return out;
}

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = schedule_plugin<round_owner, rows>(
    "schedule/interleaved", "0.1.0", "Pipeline schedule: 1F1B with several stages on each rank");
