// The order of 1F1B, and the memory that it bounds.
#include <gtest/gtest.h>

#include "schedule_case.hpp"

namespace tenon::test {
namespace {

const ScheduleCase& schedule() {
  static const ScheduleCase loaded("1f1b");
  return loaded;
}

TEST(OneForwardOneBackward, warms_up_by_the_ranks_behind_then_alternates) {
  EXPECT_EQ(schedule().texts(3, 3, 4),
            (RowTexts{"F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3", "F1.0 F1.1 B1.0 F1.2 B1.1 F1.3 B1.2 B1.3",
                      "F2.0 B2.0 F2.1 B2.1 F2.2 B2.2 F2.3 B2.3"}));
  EXPECT_EQ(schedule().texts(3, 3, 1), (RowTexts{"F0.0 B0.0", "F1.0 B1.0", "F2.0 B2.0"}));
}

TEST(OneForwardOneBackward, keeps_as_many_microbatches_as_ranks_from_here_to_the_end) {
  EXPECT_EQ(activations_of(schedule().rows(4, 4, 9)), (std::vector<int>{4, 3, 2, 1}));
  EXPECT_EQ(activations_of(schedule().rows(4, 4, 2)), (std::vector<int>{2, 2, 2, 1}));
}

TEST(OneForwardOneBackward, refuses_several_stages_a_rank) {
  EXPECT_EQ(
      schedule().refusal(2, 4, 3),
      "error[S001]: 4 stages on 2 pipeline ranks, but this schedule runs 1 on each: set stages to 2, or use "
      "schedule/interleaved\n  --> schedule/1f1b");
}

}  // namespace
}  // namespace tenon::test
