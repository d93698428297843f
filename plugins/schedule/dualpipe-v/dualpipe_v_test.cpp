// The order of DualPipe-V: which rows overlap, and where weight gradients are apart.
#include <gtest/gtest.h>

#include <map>

#include "schedule_case.hpp"

namespace tenon::test {
namespace {

const ScheduleCase& schedule() {
  static const ScheduleCase loaded("dualpipe-v");
  return loaded;
}

TEST(DualpipeV, is_the_published_schedule) {
  EXPECT_EQ(
      schedule().texts(2, 4, 5),
      (RowTexts{
          "F0.0 F0.1 F0.2 F3.0 I3.0 W3.0 F3.1 F0.3&B3.1 F3.2&B0.0 F0.4&B3.2 F3.3&B0.1 B3.3 F3.4&B0.2 B3.4 "
          "I0.3 W0.3 I0.4 W0.4",
          "F1.0 F2.0 F1.1 F2.1 F1.2 B2.0 F2.2&B1.0 F1.3&B2.1 F2.3&B1.1 F1.4&B2.2 F2.4&B1.2 B2.3 B1.3 "
          "I2.4 I1.4 W2.4 W1.4"}));
}

TEST(DualpipeV, overlaps_a_forward_of_one_leg_with_a_backward_of_the_other) {
  const Rows rows = schedule().rows(4, 8, 12);
  for (size_t rank = 0; rank < 4; ++rank) {
    int pairs = 0;
    for (size_t i = 0; i + 1 < rows.of_rank[rank].size(); ++i) {
      const Row &first = rows.of_rank[rank][i], &second = rows.of_rank[rank][i + 1];
      if (first.overlap == 0 || first.overlap != second.overlap) continue;
      EXPECT_EQ(first.kind, RowKind::forward);
      EXPECT_EQ(second.kind, RowKind::backward);
      EXPECT_EQ(first.stage + second.stage, 7);
      ++pairs;
    }
    // 2 * (microbatches - 2 * ranks + rank + 1) of step 4 and (ranks - rank - 1) of step 5; the last rank's
    // first two rows of step 4 stand alone
    const int r = static_cast<int>(rank);
    EXPECT_EQ(pairs, 2 * (12 - 8 + r + 1) + 3 - r - (r == 3 ? 1 : 0));
  }
}

TEST(DualpipeV, cut_to_few_microbatches_leaves_no_row_with_half_a_pair) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (int microbatches = 1; microbatches < 2 * ranks; ++microbatches) {
      const Rows rows = schedule().rows(ranks, 2 * ranks, microbatches);
      for (const auto& rank : rows.of_rank) {
        std::map<int, int> members;
        for (const Row& row : rank) ++members[row.overlap];
        members.erase(0);
        for (const auto& [overlap, count] : members) EXPECT_EQ(count, 2);
      }
    }
  }
}

TEST(DualpipeV, goes_down_the_ranks_and_comes_back_up) {
  const std::vector<int> owners = {0, 1, 2, 2, 1, 0};
  for (int stage = 0; stage < 6; ++stage)
    EXPECT_EQ(schedule().owner(3, 6, stage), owners[static_cast<size_t>(stage)]);
}

TEST(DualpipeV, keeps_one_activation_more_than_two_a_rank_of_the_pipeline) {
  EXPECT_EQ(activations_of(schedule().rows(4, 8, 20)), (std::vector<int>{9, 9, 9, 9}));
}

TEST(DualpipeV, refuses_all_but_two_stages_a_rank) {
  EXPECT_EQ(
      schedule().refusal(2, 2, 3),
      "error[S001]: 2 stages on 2 pipeline ranks, but this schedule runs 2 on each: set stages to 4\n  --> "
      "schedule/dualpipe-v");
}

}  // namespace
}  // namespace tenon::test
