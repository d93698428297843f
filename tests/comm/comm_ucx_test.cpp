// comm/ucx: every scenario on processes of this host, over shared memory and over loopback TCP, with operands
// in memory from alloc and elsewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "comm_api.h"
#include "processes.h"

// LeakSanitizer's tracer crashes now and then beside UCX's thread; the other checks of AddressSanitizer stay
// on.
extern "C" __attribute__((used, visibility("default"))) const char* __asan_default_options() {
  return "detect_leaks=0";
}

namespace tenon::test {
namespace {

constexpr double kSeconds = 60;

struct Case {
  int world;
  const char* tls;
  bool reachable = false;
};

// What the ranks complained of.
std::string run_processes(const std::string& scenario, const Case& c) {
  const std::vector<ChildResult> results = run_ranks(scenario, c.world, c.tls, c.reachable, kSeconds);
  std::string complaints;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    if (results[rank].exit_status == 0 && results[rank].output.empty()) continue;
    complaints += "rank " + std::to_string(rank) + " (status " + std::to_string(results[rank].exit_status) +
                  "): " + results[rank].output;
  }
  return complaints;
}

class CommUcx : public testing::TestWithParam<Case> {
 protected:
  void expect_passes(const std::string& scenario) { EXPECT_EQ(run_processes(scenario, GetParam()), ""); }
};

class CommUcxFaults : public CommUcx {};

TEST_P(CommUcx, every_kind_and_dtype_matches_the_serial_reference_bit_by_bit) {
  expect_passes("every_kind_matches_the_reference");
}
TEST_P(CommUcx, groups_work_side_by_side) { expect_passes("groups_work_side_by_side"); }
TEST_P(CommUcx, many_plans_are_in_flight_and_finish_in_any_order) {
  expect_passes("many_plans_are_in_flight");
}
TEST_P(CommUcx, one_plan_starts_many_times) { expect_passes("one_plan_starts_many_times"); }
TEST_P(CommUcx, bad_operations_are_refused_with_a_reason) { expect_passes("bad_operations_are_refused"); }
TEST_P(CommUcxFaults, a_missing_member_is_named_after_the_timeout) {
  expect_passes("a_missing_member_is_named_after_the_timeout");
}
TEST_P(CommUcxFaults, a_mismatch_names_both_sides) { expect_passes("a_mismatch_names_both_sides"); }
TEST_P(CommUcxFaults, a_mismatched_message_names_both_ends) {
  expect_passes("a_mismatched_message_names_both_ends");
}
TEST_P(CommUcxFaults, a_rank_that_stops_is_named_after_the_timeout) { expect_passes("a_rank_stops"); }
TEST_P(CommUcxFaults, an_abort_at_any_moment_gives_memory_back) {
  expect_passes("an_abort_gives_memory_back");
}
TEST_P(CommUcxFaults, an_abort_reaches_whoever_comes_later) {
  expect_passes("an_abort_reaches_whoever_comes_later");
}
TEST_P(CommUcxFaults, an_abort_ends_a_wait) { expect_passes("an_abort_ends_a_wait"); }
TEST_P(CommUcxFaults, the_death_of_a_rank_is_reported_to_all_others) { expect_passes("a_rank_dies"); }

TEST_P(CommUcxFaults, a_rank_that_freezes_and_goes_on_touches_nothing_of_the_others) {
  expect_passes("a_rank_freezes");
}

TEST_P(CommUcxFaults, a_rank_killed_in_the_middle_is_named_by_all_others) {
  for (int round = 0; round < 3; ++round) {
    std::vector<ChildResult> results =
        run_ranks("a_rank_is_killed", GetParam().world, GetParam().tls, GetParam().reachable, kSeconds);
    EXPECT_EQ(results.back().output, "ended by signal 9\n");
    results.pop_back();
    for (const ChildResult& other : results) EXPECT_EQ(other.exit_status, 0) << other.output;
  }
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  std::string tls = info.param.tls;
  std::replace(tls.begin(), tls.end(), ',', '_');
  return "of_" + std::to_string(info.param.world) + (tls.empty() ? "" : "_" + tls) +
         (info.param.reachable ? "_reachable" : "");
}
INSTANTIATE_TEST_SUITE_P(Worlds, CommUcx,
                         testing::Values(Case{1, ""}, Case{2, ""}, Case{3, ""}, Case{4, ""}, Case{3, "tcp"},
                                         Case{4, "tcp"}, Case{1, "", true}, Case{2, "", true},
                                         Case{3, "", true}, Case{5, "posix,self,tcp", true},
                                         Case{2, "tcp", true}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Worlds, CommUcxFaults,
                         testing::Values(Case{2, ""}, Case{3, ""}, Case{4, ""}, Case{2, "tcp"},
                                         Case{3, "tcp"}, Case{2, "", true}, Case{3, "", true}),
                         case_name);

// What shared memory there is on this host: UCX's names in /dev/shm, and System V segments.
std::set<std::string> shared_memory() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.find("ucx") != std::string::npos) names.insert("/dev/shm/" + name);
  }
  std::ifstream segments("/proc/sysvipc/shm");
  std::string line;
  std::getline(segments, line);  // headings
  for (std::string key, id; segments >> key >> id; std::getline(segments, line))
    names.insert("segment " + id);
  return names;
}

TEST(CommUcxMemory, a_killed_rank_leaves_nothing_behind) {
  const std::set<std::string> before = shared_memory();
  for (const bool reachable : {false, true}) {
    for (const char* tls : {"posix,self,tcp", ""}) {
      EXPECT_EQ(run_processes("a_rank_dies", {3, tls, reachable}), "");
      run_ranks("a_rank_is_killed", 2, tls, reachable, kSeconds);
    }
  }
  // Other programs may come and go meanwhile: only what stays counts.
  std::set<std::string> left = shared_memory();
  for (const std::string& name : before) left.erase(name);
  for (int i = 0; i < 20 && !left.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const std::set<std::string> now = shared_memory();
    std::erase_if(left, [&](const std::string& name) { return now.count(name) == 0; });
  }
  EXPECT_TRUE(left.empty()) << *left.begin() << " stayed behind";
}

TEST(CommUcxOpen, unknown_transports_are_an_error_that_names_them) {
  const std::vector<ChildResult> results =
      run_ranks("every_kind_matches_the_reference", 1, "warp", false, kSeconds);
  EXPECT_EQ(results[0].exit_status, 1);
  EXPECT_NE(results[0].output.find("transports 'warp'"), std::string::npos) << results[0].output;
}

TEST(CommUcxTable, declares_tree_order) {
  EXPECT_EQ(load_comm(TENON_PLUGIN_DIR "/libtenon-comm-ucx.so").flags, TENON_COMM_TREE_ORDER);
}

}  // namespace
}  // namespace tenon::test

int main(int argc, char** argv) {
  const int status = tenon::test::child_main(argc, argv, TENON_PLUGIN_DIR "/libtenon-comm-ucx.so");
  if (status >= 0) return status;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
