// Power lost before each storage operation of a save: what was not synced is dropped, torn or reordered.
#include <gtest/gtest.h>

#include "fault_storage.h"
#include "scenarios.h"

namespace tenon::checkpoint {
namespace {

struct PowerLost {};

constexpr uint64_t kSeeds = 20;

void check_survivor(const MemoryStorage& storage, Loss loss, uint64_t seed, const Scenario& scenario,
                    const std::string& what) {
  MemoryStorage survivor = storage.after_power_loss(loss, seed);
  const std::string which = what + ", seed " + std::to_string(seed);
  expect_old_or_new(survivor, scenario, which);
  if (seed % 8 == 0) expect_next_save_cleans(survivor, which);
}

// Every way to lose power at operation `at`; false when the save ended before it.
bool lose_power(const MemoryStorage& prepared, const Scenario& scenario, int64_t at) {
  MemoryStorage storage = prepared.after_power_loss(Loss::kDropAll);
  FaultStorage faults(storage, {Fault::kKill, at, 0, [] { throw PowerLost{}; }});
  try {
    const auto saved = save_sample(faults, kRoot, scenario.saved, scenario.options);
    EXPECT_TRUE(saved.ok()) << saved.error().text();
    return false;
  } catch (const PowerLost&) {
  }
  const std::string what = std::string(scenario.name) + ", operation " + std::to_string(at) + ": " +
                           faults.faulty().name + " " + faults.faulty().path;
  check_survivor(storage, Loss::kDropAll, 0, scenario, what);
  for (uint64_t seed = 1; seed <= kSeeds; ++seed)
    check_survivor(storage, Loss::kRandom, seed, scenario, what);
  return true;
}

TEST(CheckpointPower, NewestLoadableIsOldOrNewAfterPowerLossAtAnyOperation) {
  uint64_t states = 0;
  for (const Scenario& scenario : scenarios()) {
    const MemoryStorage prepared = prepare(scenario);
    for (int64_t at = 0; lose_power(prepared, scenario, at); ++at) states += 1 + kSeeds;
  }
  EXPECT_GE(states, 10000U);
}

TEST(CheckpointPower, SaveThatReturnedSurvivesPowerLoss) {
  for (const Scenario& scenario : scenarios()) {
    MemoryStorage storage = prepare(scenario);
    ASSERT_TRUE(save_sample(storage, kRoot, scenario.saved, scenario.options).ok());
    MemoryStorage dropped = storage.after_power_loss(Loss::kDropAll);
    expect_new(dropped, scenario, scenario.name);
    for (uint64_t seed = 0; seed < 200; ++seed) {
      MemoryStorage survivor = storage.after_power_loss(Loss::kRandom, seed);
      expect_new(survivor, scenario, scenario.name);
    }
  }
}

}  // namespace
}  // namespace tenon::checkpoint
