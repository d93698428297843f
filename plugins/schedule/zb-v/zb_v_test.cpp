// The order of ZB-V, and that it stays within the memory of 1F1B: 2 * ranks activations of half the size.
#include <gtest/gtest.h>

#include "schedule_case.hpp"

namespace tenon::test {
namespace {

const ScheduleCase& schedule() {
  static const ScheduleCase loaded("zb-v");
  return loaded;
}

TEST(ZbV, is_the_schedule_of_the_paper) {
  EXPECT_EQ(
      schedule().texts(2, 4, 4),
      (RowTexts{
          "F0.0 F0.1 F0.2 F3.0 I3.0 W3.0 F3.1 I3.1 W3.1 F0.3 I0.0 W0.0 F3.2 I3.2 W3.2 I0.1 W0.1 F3.3 I3.3 "
          "I0.2 W3.3 I0.3 W0.2 W0.3",
          "F1.0 F2.0 F1.1 F2.1 I2.0 W2.0 F1.2 I1.0 W1.0 F2.2 I2.1 W2.1 F1.3 I1.1 W1.1 F2.3 I2.2 I1.2 I2.3 "
          "I1.3 W2.2 W1.2 W2.3 W1.3"}));
}

TEST(ZbV, delays_all_weight_gradients_where_there_are_few_microbatches) {
  EXPECT_EQ(schedule().texts(2, 4, 1),
            (RowTexts{"F0.0 F3.0 I3.0 W3.0 I0.0 W0.0", "F1.0 F2.0 I2.0 I1.0 W2.0 W1.0"}));
}

TEST(ZbV, goes_down_the_ranks_and_comes_back_up) {
  const std::vector<int> owners = {0, 1, 2, 2, 1, 0};
  for (int stage = 0; stage < 6; ++stage)
    EXPECT_EQ(schedule().owner(3, 6, stage), owners[static_cast<size_t>(stage)]);
}

TEST(ZbV, keeps_two_activations_a_rank_of_the_pipeline) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int microbatches = 1; microbatches <= 3 * ranks; ++microbatches) {
      for (const int activations : activations_of(schedule().rows(ranks, 2 * ranks, microbatches))) {
        EXPECT_LE(activations, 2 * std::min(ranks, microbatches));
      }
    }
  }
}

TEST(ZbV, refuses_all_but_two_stages_a_rank) {
  const std::string refusal =
      "error[S001]: 2 stages on 2 pipeline ranks, but this schedule runs 2 on each: set stages to 4\n  --> "
      "schedule/zb-v";
  EXPECT_EQ(schedule().refusal(2, 2, 3), refusal);
  EXPECT_NE(schedule().refusal(2, 6, 3), "");
}

}  // namespace
}  // namespace tenon::test
