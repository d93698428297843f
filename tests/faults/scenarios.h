// The saves that are disturbed, and what must hold afterwards.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "memory_storage.h"
#include "sample_state.h"

namespace tenon::checkpoint {

struct Scenario {
  const char* name;
  std::vector<uint64_t> before;  // steps already there
  uint64_t saved;                // step of the disturbed save
  CommitOptions options;
};

inline std::vector<Scenario> scenarios() {
  return {
      {"first save", {}, 20, {.keep = 1}},
      {"one old, which goes", {10}, 20, {.keep = 1}},
      {"two old, one goes", {5, 10}, 20, {.keep = 2}},
      {"same step again", {10}, 10, {.keep = 1}},
      {"back from step 30", {10, 30}, 20, {.keep = 2, .newer = NewerSteps::kRemove}},
  };
}

// A storage with the scenario's older checkpoints and the debris of a save that died.
inline MemoryStorage prepare(const Scenario& scenario) {
  MemoryStorage storage;
  for (const uint64_t step : scenario.before) {
    const auto saved = save_sample(storage, kRoot, step, {.keep = 9});
    EXPECT_TRUE(saved.ok()) << saved.error().text();
  }
  if (!scenario.before.empty()) {
    EXPECT_TRUE(storage.make_directory(std::string(kRoot) + "/.tmp-7-dead").ok());
    storage.put(std::string(kRoot) + "/.tmp-7-dead/shard-00000.safetensors", "half");
    EXPECT_TRUE(storage.sync_directory(std::string(kRoot) + "/.tmp-7-dead").ok());
    EXPECT_TRUE(storage.sync_directory(kRoot).ok());
  }
  // That a save which returned is durable is part of what is tested: nothing else is kept.
  return storage.after_power_loss(Loss::kDropAll);
}

// The newest loadable checkpoint is one of those before or the new one, bit for bit. Returns whether it is
// the disturbed save's. Saves of the same step are told apart by content: the disturbed one holds the same
// values.
inline void expect_old_or_new(Storage& storage, const Scenario& scenario, const std::string& what) {
  const auto latest = find_latest(storage, kRoot);
  if (!latest.ok()) {
    EXPECT_TRUE(scenario.before.empty()) << what << ": " << latest.error().text();
    EXPECT_EQ(latest.error().code, "C001") << what;
    return;
  }
  const auto step = static_cast<uint64_t>(latest->id.step);
  const bool known =
      step == scenario.saved || std::count(scenario.before.begin(), scenario.before.end(), step) > 0;
  ASSERT_TRUE(known) << what << ": step " << step;
  const uint64_t newest_before =
      scenario.before.empty() ? 0 : *std::max_element(scenario.before.begin(), scenario.before.end());
  EXPECT_TRUE(step == scenario.saved || step == newest_before) << what << ": fell back to step " << step;
  const auto contents = read_contents(storage, latest->directory);
  ASSERT_TRUE(contents.ok()) << what << ": " << contents.error().text();
  EXPECT_TRUE(*contents == sample_contents(step)) << what << ": step " << step << " is a mix";
}

inline void expect_new(Storage& storage, const Scenario& scenario, const std::string& what) {
  const auto latest = find_latest(storage, kRoot);
  ASSERT_TRUE(latest.ok()) << what << ": " << latest.error().text();
  EXPECT_EQ(static_cast<uint64_t>(latest->id.step), scenario.saved) << what;
  expect_old_or_new(storage, scenario, what);
}

// The next save succeeds and leaves nothing but itself.
inline void expect_next_save_cleans(Storage& storage, const std::string& what) {
  const auto saved = save_sample(storage, kRoot, 40, {.keep = 1}, "next");
  ASSERT_TRUE(saved.ok()) << what << ": " << saved.error().text();
  EXPECT_EQ(entries(storage, kRoot), std::vector<std::string>{"step-40"}) << what;
  const auto contents = read_contents(storage, *saved);
  ASSERT_TRUE(contents.ok()) << what;
  EXPECT_TRUE(*contents == sample_contents(40)) << what;
}

}  // namespace tenon::checkpoint
