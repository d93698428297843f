// Megatron's order where the microbatches are a multiple of the ranks, and its groups where they are not.
#include <gtest/gtest.h>

#include "schedule_case.hpp"

namespace tenon::test {
namespace {

const ScheduleCase& schedule() {
  static const ScheduleCase loaded("interleaved");
  return loaded;
}

TEST(Interleaved, is_megatrons_order_for_a_multiple_of_the_ranks) {
  EXPECT_EQ(schedule().texts(2, 4, 4),
            (RowTexts{"F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 B0.1 B2.2 B2.3 B0.2 B0.3",
                      "F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 F1.2 B1.0 F1.3 B1.1 F3.2 B3.2 F3.3 B3.3 B1.2 B1.3"}));
}

TEST(Interleaved, groups_are_as_equal_as_possible_and_no_smaller_than_the_ranks) {
  // 5 microbatches on 2 ranks: groups of 3 and 2.
  EXPECT_EQ(
      schedule().texts(2, 4, 5)[0],
      "F0.0 F0.1 F0.2 F2.0 F2.1 F2.2 B2.0 F0.3 B2.1 F0.4 B2.2 F2.3 B0.0 F2.4 B0.1 B0.2 B2.3 B2.4 B0.3 B0.4");
  // fewer microbatches than ranks: one group
  EXPECT_EQ(schedule().texts(3, 6, 2)[0], "F0.0 F0.1 F3.0 F3.1 B3.0 B3.1 B0.0 B0.1");
}

TEST(Interleaved, runs_any_number_of_microbatches) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int rounds = 2; rounds <= 4; ++rounds) {
      for (int microbatches = 1; microbatches <= 4 * ranks + 3; ++microbatches) {
        const auto rows = schedule().try_rows(ranks, ranks * rounds, microbatches);
        ASSERT_TRUE(rows.ok()) << ranks << ' ' << rounds << ' ' << microbatches << rows.error().text();
      }
    }
  }
}

TEST(Interleaved, stages_go_round_the_ranks) {
  EXPECT_EQ(schedule().owner(3, 9, 0), 0);
  EXPECT_EQ(schedule().owner(3, 9, 5), 2);
  EXPECT_EQ(schedule().owner(3, 9, 6), 0);
}

TEST(Interleaved, memory_is_that_of_the_paper) {
  // (rounds - 1) * ranks + 2 * (ranks - 1) + 1 on rank 0, of 1 / rounds of the size
  EXPECT_EQ(activations_of(schedule().rows(4, 8, 16)), (std::vector<int>{11, 9, 7, 5}));
}

TEST(Interleaved, refuses_one_stage_a_rank) {
  EXPECT_EQ(schedule().refusal(2, 2, 3),
            "error[S001]: 2 stages on 2 pipeline ranks, but this schedule runs several on each, the same "
            "number: set "
            "stages to 4 or a higher multiple of the ranks, or use schedule/1f1b for one\n  --> "
            "schedule/interleaved");
}

}  // namespace
}  // namespace tenon::test
