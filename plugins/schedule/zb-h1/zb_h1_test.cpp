// The order of ZB-H1, and that it stays within the memory of 1F1B.
#include <gtest/gtest.h>

#include "schedule_case.hpp"

namespace tenon::test {
namespace {

const ScheduleCase& schedule() {
  static const ScheduleCase loaded("zb-h1");
  return loaded;
}

TEST(ZbH1, is_the_schedule_of_the_paper) {
  EXPECT_EQ(
      schedule().texts(4, 4, 6),
      (RowTexts{
          "F0.0 F0.1 F0.2 F0.3 I0.0 W0.0 F0.4 I0.1 W0.1 F0.5 I0.2 W0.2 I0.3 W0.3 I0.4 W0.4 I0.5 W0.5",
          "F1.0 F1.1 F1.2 I1.0 F1.3 I1.1 W1.0 F1.4 I1.2 W1.1 F1.5 I1.3 W1.2 I1.4 W1.3 I1.5 W1.4 W1.5",
          "F2.0 F2.1 I2.0 F2.2 I2.1 F2.3 I2.2 W2.0 F2.4 I2.3 W2.1 F2.5 I2.4 W2.2 I2.5 W2.3 W2.4 W2.5",
          "F3.0 I3.0 F3.1 I3.1 F3.2 I3.2 F3.3 I3.3 W3.0 F3.4 I3.4 W3.1 F3.5 I3.5 W3.2 W3.3 W3.4 W3.5"}));
  EXPECT_EQ(schedule().texts(1, 1, 2), (RowTexts{"F0.0 I0.0 W0.0 F0.1 I0.1 W0.1"}));
}

TEST(ZbH1, keeps_no_more_than_1f1b_keeps_at_most) {
  EXPECT_EQ(activations_of(schedule().rows(4, 4, 20)), (std::vector<int>{4, 4, 4, 4}));
  EXPECT_EQ(activations_of(schedule().rows(4, 4, 3)), (std::vector<int>{3, 3, 3, 3}));
}

TEST(ZbH1, refuses_several_stages_a_rank) {
  EXPECT_EQ(
      schedule().refusal(2, 4, 3),
      "error[S001]: 4 stages on 2 pipeline ranks, but this schedule runs 1 on each: set stages to 2, or use "
      "schedule/zb-v for two on each\n  --> schedule/zb-h1");
}

}  // namespace
}  // namespace tenon::test
