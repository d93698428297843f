// comm/local: every scenario on threads of this process, and what only virtual ranks can do wrong.
#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "run/rendezvous/memory_rendezvous.h"
#include "scenarios.h"

namespace tenon::test {
namespace {

const tenon_comm& table() {
  static const tenon_comm& loaded = load_comm(TENON_PLUGIN_DIR "/libtenon-comm-local.so");
  return loaded;
}

// Runs the scenario on `world` threads and returns what the ranks complained of.
std::string run_virtual_ranks(Scenario scenario, int world) {
  run::MemoryRendezvous shared;
  std::mutex mutex;
  std::string complaints;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      const RankContext context{table(), shared, rank, world, "", false};
      try {
        scenario(context);
      } catch (const std::exception& e) {
        const std::lock_guard lock(mutex);
        complaints += "rank " + std::to_string(rank) + ": " + e.what() + "\n";
        shared.abort("rank " + std::to_string(rank) + " failed");
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return complaints;
}

class CommLocal : public testing::TestWithParam<int> {
 protected:
  void expect_passes(Scenario scenario) { EXPECT_EQ(run_virtual_ranks(scenario, GetParam()), ""); }
};

class CommLocalFaults : public CommLocal {};

TEST_P(CommLocal, every_kind_and_dtype_matches_the_serial_reference_bit_by_bit) {
  expect_passes(every_kind_matches_the_reference);
}
TEST_P(CommLocal, groups_work_side_by_side) { expect_passes(groups_work_side_by_side); }
TEST_P(CommLocal, many_plans_are_in_flight_and_finish_in_any_order) {
  expect_passes(many_plans_are_in_flight);
}
TEST_P(CommLocal, one_plan_starts_many_times) { expect_passes(one_plan_starts_many_times); }
TEST_P(CommLocal, bad_operations_are_refused_with_a_reason) { expect_passes(bad_operations_are_refused); }
TEST_P(CommLocalFaults, a_missing_member_is_named_after_the_timeout) {
  expect_passes(a_missing_member_is_named_after_the_timeout);
}
TEST_P(CommLocalFaults, a_mismatch_names_both_sides) { expect_passes(a_mismatch_names_both_sides); }
TEST_P(CommLocalFaults, a_mismatched_message_names_both_ends) {
  expect_passes(a_mismatched_message_names_both_ends);
}
TEST_P(CommLocalFaults, a_rank_that_stops_is_named_after_the_timeout) { expect_passes(a_rank_stops); }
TEST_P(CommLocalFaults, an_abort_at_any_moment_gives_memory_back) {
  expect_passes(an_abort_gives_memory_back);
}
TEST_P(CommLocalFaults, an_abort_reaches_whoever_comes_later) {
  expect_passes(an_abort_reaches_whoever_comes_later);
}
TEST_P(CommLocalFaults, an_abort_ends_a_wait) { expect_passes(an_abort_ends_a_wait); }

std::string world_name(const testing::TestParamInfo<int>& info) { return "of_" + std::to_string(info.param); }
INSTANTIATE_TEST_SUITE_P(Worlds, CommLocal, testing::Values(1, 2, 3, 4, 8), world_name);
INSTANTIATE_TEST_SUITE_P(Worlds, CommLocalFaults, testing::Values(2, 3, 4, 8), world_name);

TEST(CommLocalOpen, a_rank_that_does_not_come_is_named) {
  run::MemoryRendezvous shared;
  const run::RendezvousTable rendezvous(shared);
  for (const int64_t timeout_ns : {int64_t{50'000'000}, int64_t{0}}) {
    run::ScopedRendezvous scope(shared, std::to_string(timeout_ns));
    const run::RendezvousTable scoped(scope);
    try {
      const Domain domain(table(), scoped.table(), {0, 3, timeout_ns, ""});
      FAIL() << "opened a world of 3 alone";
    } catch (const CommError& e) {
      EXPECT_EQ(e.code(), TENON_E_TIMEOUT);
      EXPECT_NE(std::string(e.what()).find("not come: rank 1 2"), std::string::npos) << e.what();
    }
    // Rank 1 comes after rank 0 has given up.
    try {
      const Domain domain(table(), scoped.table(), {1, 3, timeout_ns, ""});
      FAIL() << "joined a domain that was given up";
    } catch (const CommError& e) {
      EXPECT_EQ(e.code(), TENON_E_PEER) << e.what();
    }
  }
}

TEST(CommLocalOpen, a_rank_of_another_process_is_refused) {
  run::MemoryRendezvous shared;
  struct {
    uint64_t token = 1;
    int64_t pid = 1;
    int32_t world = 2;
    int32_t reserved = 0;
  } invitation;
  const std::string_view bytes(reinterpret_cast<const char*>(&invitation), sizeof invitation);
  ASSERT_TRUE(shared.set("comm.local/hub", bytes).ok());
  const run::RendezvousTable rendezvous(shared);
  try {
    const Domain domain(table(), rendezvous.table(), {1, 2, 1'000'000'000, ""});
    FAIL();
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), TENON_E_ARGUMENT);
    EXPECT_NE(std::string(e.what()).find("use comm/ucx between processes"), std::string::npos) << e.what();
  }
}

// A rank that closes its domain can no longer come: the others are told at once, without any timeout.
TEST(CommLocalClose, a_wait_for_a_rank_that_has_closed_ends_without_a_timeout) {
  const Scenario scenario = [](const RankContext& c) {
    const run::RendezvousTable rendezvous(c.rendezvous);
    const Domain domain(c.table, rendezvous.table(), c.settings(-1));
    if (c.rank == 1) return;
    const Group world(domain, all_ranks(c.world));
    Plan plan(world, {OpSpec{}});
    try {
      plan.run();
    } catch (const CommError& e) {
      EXPECT_EQ(e.code(), TENON_E_PEER);
      EXPECT_NE(std::string(e.what()).find("rank 1 has closed its domain"), std::string::npos) << e.what();
      return;
    }
    FAIL() << "a barrier without rank 1";
  };
  EXPECT_EQ(run_virtual_ranks(scenario, 3), "");
}

TEST(CommLocalTable, declares_tree_order_and_one_process) {
  EXPECT_EQ(table().flags, TENON_COMM_TREE_ORDER | TENON_COMM_IN_PROCESS);
  EXPECT_EQ(table().struct_size, sizeof(tenon_comm));
}

}  // namespace
}  // namespace tenon::test
