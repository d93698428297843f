// All forwards, then all backwards.
#include <gtest/gtest.h>

#include "schedule_case.hpp"

namespace tenon::test {
namespace {

const ScheduleCase& schedule() {
  static const ScheduleCase loaded("gpipe");
  return loaded;
}

TEST(Gpipe, runs_all_forwards_then_all_backwards) {
  EXPECT_EQ(schedule().texts(2, 2, 3),
            (RowTexts{"F0.0 F0.1 F0.2 B0.0 B0.1 B0.2", "F1.0 F1.1 F1.2 B1.0 B1.1 B1.2"}));
  EXPECT_EQ(schedule().texts(1, 1, 1), (RowTexts{"F0.0 B0.0"}));
}

TEST(Gpipe, keeps_all_microbatches_in_memory) {
  EXPECT_EQ(activations_of(schedule().rows(3, 3, 7)), (std::vector<int>{7, 7, 7}));
}

TEST(Gpipe, refuses_several_stages_a_rank) {
  EXPECT_EQ(
      schedule().refusal(2, 4, 3),
      "error[S001]: 4 stages on 2 pipeline ranks, but this schedule runs 1 on each: set stages to 2, or use "
      "schedule/interleaved\n  --> schedule/gpipe");
}

}  // namespace
}  // namespace tenon::test
