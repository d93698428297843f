#include "cli/eta.h"

#include <gtest/gtest.h>

#include "run/due.h"

namespace tenon::cli {
namespace {

TEST(Due, times_due_counts_what_the_loop_does) {
  for (int64_t every = 0; every <= 8; ++every) {
    for (int64_t last = 1; last <= 20; ++last) {
      for (int64_t first = 1; first <= last + 1; ++first) {
        int64_t want = 0;
        for (int64_t step = first; step <= last; ++step) want += due(every, step, last) ? 1 : 0;
        EXPECT_EQ(times_due(every, first, last), want) << every << " " << first << " " << last;
      }
    }
  }
}

TEST(Eta, adds_the_evaluations_and_saves_that_are_left) {
  Pace pace;
  pace.step = 0.5;
  for (const double seconds : {9.0, 11.0}) pace.eval.add(seconds);
  pace.save.add(3);
  // 60 steps; evaluations behind 40, 60, 80, 100; saves behind 50, 100.
  const Eta eta = eta_of(remaining_after(40, 100, 20, 50), pace);
  EXPECT_DOUBLE_EQ(eta.seconds, 60 * 0.5 + 4 * 10 + 2 * 3);
  EXPECT_FALSE(eta.at_least);
}

TEST(Eta, counts_the_last_step_s_evaluation_and_save) {
  Pace pace;
  pace.step = 1;
  pace.eval.add(7);
  pace.save.add(2);
  EXPECT_DOUBLE_EQ(eta_of(remaining_after(10, 10, 3, 4), pace).seconds, 9);
  EXPECT_DOUBLE_EQ(eta_of(remaining_after(10, 10, 0, 0), pace).seconds, 0);
}

TEST(Eta, says_when_it_does_not_know_all) {
  Pace pace;
  pace.step = 1;
  EXPECT_TRUE(eta_of(remaining_after(5, 10, 5, 0), pace).at_least);
  EXPECT_TRUE(eta_of(remaining_after(5, 10, 0, 5), pace).at_least);
  EXPECT_FALSE(eta_of(remaining_after(5, 10, 0, 0), pace).at_least);
  pace.eval.add(1);
  EXPECT_FALSE(eta_of(remaining_after(5, 10, 5, 0), pace).at_least);
}

}  // namespace
}  // namespace tenon::cli
