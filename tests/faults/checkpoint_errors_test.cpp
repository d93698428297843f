// Each storage operation of a save fails in turn: disk full, I/O error, short write, failed sync.
#include <errno.h>
#include <gtest/gtest.h>

#include "fault_storage.h"
#include "scenarios.h"

namespace tenon::checkpoint {
namespace {

struct Attempt {
  bool reached;
  Result<std::string> saved;
  std::vector<Operation> log;
  Operation faulty;
};

Attempt save_with(MemoryStorage& storage, const Scenario& scenario, Fault fault, int errno_value,
                  int64_t at) {
  FaultStorage faults(storage, {fault, at, errno_value, nullptr});
  auto saved = save_sample(faults, kRoot, scenario.saved, scenario.options);
  const bool reached = faults.reached();
  return {reached, std::move(saved), faults.log(), reached ? faults.faulty() : Operation{}};
}

// Reads of checkpoints that were there before decide nothing but what is kept.
bool is_look_at_old(const Operation& operation, const Scenario& scenario) {
  const bool reads = operation.name == "open" || operation.name == "size" || operation.name == "read" ||
                     operation.name == "list" || operation.name == "kind";
  return reads && std::any_of(scenario.before.begin(), scenario.before.end(), [&](uint64_t step) {
           return operation.path.starts_with(std::string(kRoot) + "/step-" + std::to_string(step));
         });
}

// Reading the new checkpoint once more when old ones are removed: failing there keeps too many, not too few.
bool is_look_at_new(const Operation& operation, const Scenario& scenario) {
  return operation.path.starts_with(std::string(kRoot) + "/step-" + std::to_string(scenario.saved));
}

void expect_error_names_path(const Attempt& attempt, const Scenario& scenario, int64_t at, bool goes_on,
                             const std::string& what) {
  if (attempt.saved.ok()) {
    EXPECT_TRUE(is_look_at_old(attempt.faulty, scenario) || is_look_at_new(attempt.faulty, scenario))
        << what << " went unreported";
    return;
  }
  const Error& error = attempt.saved.error();
  EXPECT_TRUE(error.code == "C002" || error.code == "C011") << what << ": " << error.text();
  // An error that goes on may be met first where a look at an old checkpoint was let pass.
  const bool met = std::any_of(attempt.log.begin() + at, attempt.log.end(),
                               [&](const Operation& operation) { return operation.path == error.place; });
  EXPECT_TRUE(goes_on ? met : error.place == attempt.faulty.path) << what << ": " << error.text();
  EXPECT_NE(error.cause.find("cannot "), std::string::npos) << what << ": " << error.cause;
}

void fail_every_operation(const Scenario& scenario, Fault fault, int errno_value) {
  const MemoryStorage prepared = prepare(scenario);
  for (int64_t at = 0;; ++at) {
    MemoryStorage storage = prepared.after_power_loss(Loss::kKeepAll);
    const Attempt attempt = save_with(storage, scenario, fault, errno_value, at);
    if (!attempt.reached) break;
    const std::string what = std::string(scenario.name) + ", operation " + std::to_string(at) + ": " +
                             attempt.faulty.name + " " + attempt.faulty.path;
    expect_error_names_path(attempt, scenario, at, fault == Fault::kErrorForever, what);
    expect_old_or_new(storage, scenario, what);
    // Newer ones that are to be removed are still there when removing failed.
    const bool only_new = attempt.saved.ok() || scenario.options.newer == NewerSteps::kRefuse;
    if (only_new && (attempt.saved.ok() || attempt.saved.error().code == "C011")) {
      expect_new(storage, scenario, what);
    }
    MemoryStorage dropped = storage.after_power_loss(Loss::kDropAll);
    expect_old_or_new(dropped, scenario, what + ", then power loss");
    expect_next_save_cleans(storage, what);
  }
}

TEST(CheckpointErrors, IoErrorAtAnyOperationIsReportedAndLeavesOldOrNew) {
  for (const Scenario& scenario : scenarios()) fail_every_operation(scenario, Fault::kError, EIO);
}

TEST(CheckpointErrors, FullDiskFromAnyOperationOnIsReportedAndLeavesOldOrNew) {
  for (const Scenario& scenario : scenarios()) fail_every_operation(scenario, Fault::kErrorForever, ENOSPC);
}

TEST(CheckpointErrors, OperationThatFailsAfterTakingEffectIsReportedAndLeavesOldOrNew) {
  for (const Scenario& scenario : scenarios()) fail_every_operation(scenario, Fault::kErrorAfter, EIO);
}

TEST(CheckpointErrors, FullDiskSaysSoAndSaysWhatToDo) {
  const Scenario scenario = scenarios()[1];
  const MemoryStorage prepared = prepare(scenario);
  const auto fail_at = [&](int64_t at) {
    MemoryStorage storage = prepared.after_power_loss(Loss::kKeepAll);
    return save_with(storage, scenario, Fault::kError, ENOSPC, at);
  };
  int64_t first = 0;
  while (fail_at(first).faulty.name != "preallocate") ++first;
  const Attempt attempt = fail_at(first);
  ASSERT_FALSE(attempt.saved.ok());
  EXPECT_EQ(attempt.saved.error().text(),
            "error[C002]: cannot preallocate: No space left on device\n"
            "  --> /checkpoints/.tmp-20-n/shard-00000.safetensors\n"
            "  fix: free space, or save to another disk");
}

TEST(CheckpointErrors, ShortWritesAreContinued) {
  const Scenario scenario = scenarios()[1];
  const MemoryStorage prepared = prepare(scenario);
  int writes = 0;
  for (int64_t at = 0;; ++at) {
    MemoryStorage storage = prepared.after_power_loss(Loss::kKeepAll);
    const Attempt attempt = save_with(storage, scenario, Fault::kShortWrite, 0, at);
    if (!attempt.reached) break;
    ASSERT_TRUE(attempt.saved.ok()) << attempt.saved.error().text();
    expect_new(storage, scenario, attempt.faulty.name + " " + attempt.faulty.path);
    writes += attempt.faulty.name == "write" ? 1 : 0;
  }
  EXPECT_GE(writes, 10);
}

TEST(CheckpointErrors, ShortWriteBeforeAFullDiskIsReported) {
  const Scenario scenario = scenarios()[1];
  const MemoryStorage prepared = prepare(scenario);
  for (int64_t at = 0;; ++at) {
    MemoryStorage storage = prepared.after_power_loss(Loss::kKeepAll);
    const Attempt attempt = save_with(storage, scenario, Fault::kShortThenFail, ENOSPC, at);
    if (!attempt.reached) break;
    if (attempt.faulty.name != "write") continue;
    ASSERT_FALSE(attempt.saved.ok()) << attempt.faulty.path;
    EXPECT_EQ(attempt.saved.error().place, attempt.faulty.path);
    expect_old_or_new(storage, scenario, attempt.faulty.path);
  }
}

TEST(CheckpointErrors, NothingIsDoneAfterAFailedSync) {
  const Scenario scenario = scenarios()[2];
  const MemoryStorage prepared = prepare(scenario);
  int syncs = 0;
  for (int64_t at = 0;; ++at) {
    MemoryStorage storage = prepared.after_power_loss(Loss::kKeepAll);
    const Attempt attempt = save_with(storage, scenario, Fault::kError, EIO, at);
    if (!attempt.reached) break;
    if (!attempt.faulty.name.starts_with("sync")) continue;
    ++syncs;
    EXPECT_FALSE(attempt.saved.ok()) << attempt.faulty.path;
    EXPECT_EQ(static_cast<int64_t>(attempt.log.size()), at + 1)
        << "after a failed sync of " << attempt.faulty.path;
  }
  EXPECT_GE(syncs, 7) << "two shards, their directory twice, manifest, its directory, root, root again";
}

}  // namespace
}  // namespace tenon::checkpoint
