// A process killed before, or halfway through, each storage operation of a save.
#include <gtest/gtest.h>

#include "fault_storage.h"
#include "scenarios.h"

namespace tenon::checkpoint {
namespace {

struct Killed {};

// True when the save was killed at operation `at`, false when it ran to its end before.
bool save_and_kill(MemoryStorage& storage, const Scenario& scenario, Fault fault, int64_t at,
                   std::string& what) {
  FaultStorage faults(storage, {fault, at, 0, [] { throw Killed{}; }});
  try {
    const auto saved = save_sample(faults, kRoot, scenario.saved, scenario.options);
    EXPECT_TRUE(saved.ok()) << saved.error().text();
  } catch (const Killed&) {
    what = std::string(scenario.name) + ", operation " + std::to_string(at) + ": " + faults.faulty().name +
           " " + faults.faulty().path;
    return true;
  }
  return false;
}

void kill_at_every_operation(const Scenario& scenario, Fault fault) {
  const MemoryStorage prepared = prepare(scenario);
  int64_t at = 0;
  for (;; ++at) {
    MemoryStorage storage = prepared.after_power_loss(Loss::kKeepAll);
    std::string what;
    const bool killed = save_and_kill(storage, scenario, fault, at, what);
    if (!killed) break;
    expect_old_or_new(storage, scenario, what);
    expect_next_save_cleans(storage, what);
  }
  EXPECT_GT(at, 40) << "a save has more operations than that";
}

TEST(CheckpointKill, NewestLoadableIsOldOrNewWhenKilledBeforeAnyOperation) {
  for (const Scenario& scenario : scenarios()) kill_at_every_operation(scenario, Fault::kKill);
}

TEST(CheckpointKill, NewestLoadableIsOldOrNewWhenKilledHalfwayThroughAnyWrite) {
  for (const Scenario& scenario : scenarios()) kill_at_every_operation(scenario, Fault::kKillHalfway);
}

TEST(CheckpointKill, SaveWithoutFaultsLeavesExactlyWhatKeepAllows) {
  const std::vector<std::vector<std::string>> expected = {
      {"step-20"}, {"step-20"}, {"step-10", "step-20"}, {"step-10"}, {"step-10", "step-20"}};
  for (size_t i = 0; i < scenarios().size(); ++i) {
    const Scenario scenario = scenarios()[i];
    MemoryStorage storage = prepare(scenario);
    ASSERT_TRUE(save_sample(storage, kRoot, scenario.saved, scenario.options).ok());
    EXPECT_EQ(entries(storage, kRoot), expected[i]) << scenario.name;
    expect_new(storage, scenario, scenario.name);
  }
}

}  // namespace
}  // namespace tenon::checkpoint
