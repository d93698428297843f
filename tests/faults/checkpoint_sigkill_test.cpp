// Real processes on a real file system: a child is killed by SIGKILL at each storage operation of its save.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "fault_storage.h"
#include "sample_state.h"

namespace tenon::checkpoint {
namespace {

class CheckpointSigkill : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tenon-sigkill-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    root_ = folder_ + "/checkpoints";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
  std::string root_;
};

// Runs in the child and never returns.
[[noreturn]] void save_until_killed(const std::string& root, uint64_t step, int64_t at) {
  PosixStorage disk;
  FaultStorage faults(disk, {Fault::kKill, at, 0, [] { ::kill(::getpid(), SIGKILL); }});
  const auto saved = save_sample(faults, root, step, {.keep = 1}, "child");
  ::_exit(saved.ok() ? 0 : 1);
}

// Wait status of a child that saves `step` and is killed at operation `at`.
int run_child(const std::string& root, uint64_t step, int64_t at) {
  const pid_t child = ::fork();
  if (child == 0) save_until_killed(root, step, at);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST_F(CheckpointSigkill, NewestLoadableIsOldOrNewAndTheNextSaveCleansUp) {
  PosixStorage disk;
  int64_t kills = 0;
  uint64_t old_step = 1;
  ASSERT_TRUE(save_sample(disk, root_, old_step, {.keep = 1}).ok());
  for (;; ++kills) {
    const uint64_t new_step = old_step + 1;
    const int status = run_child(root_, new_step, kills);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      break;
    }
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    const auto latest = find_latest(disk, root_);
    ASSERT_TRUE(latest.ok()) << "killed at operation " << kills << ": " << latest.error().text();
    const auto step = static_cast<uint64_t>(latest->id.step);
    ASSERT_TRUE(step == old_step || step == new_step) << step;
    const auto contents = read_contents(disk, latest->directory);
    ASSERT_TRUE(contents.ok()) << contents.error().text();
    ASSERT_TRUE(*contents == sample_contents(step)) << "killed at operation " << kills;
    old_step = new_step + 1;
    ASSERT_TRUE(save_sample(disk, root_, old_step, {.keep = 1}).ok());
    ASSERT_EQ(entries(disk, root_), std::vector<std::string>{"step-" + std::to_string(old_step)});
  }
  EXPECT_GT(kills, 40);
}

TEST_F(CheckpointSigkill, SameStepIsReplacedInOneOperation) {
  PosixStorage disk;
  ASSERT_TRUE(save_sample(disk, root_, 5, {.keep = 1}).ok());
  int64_t kills = 0;
  for (; !WIFEXITED(run_child(root_, 5, kills)); ++kills) {
    const auto latest = find_latest(disk, root_);
    ASSERT_TRUE(latest.ok()) << "killed at operation " << kills << ": " << latest.error().text();
    ASSERT_EQ(latest->id.step, 5);
  }
  EXPECT_GT(kills, 40);
  EXPECT_EQ(entries(disk, root_), std::vector<std::string>{"step-5"});
}

}  // namespace
}  // namespace tenon::checkpoint
