#include "run/overlap.h"

#include <gtest/gtest.h>

namespace tenon {
namespace {

TEST(Overlap, is_measured_from_the_second_step_alone_and_those_behind_it) {
  OverlapMeter meter(2);
  EXPECT_FALSE(meter.at_once());
  meter.add(100);  // memory is touched for the first time
  EXPECT_TRUE(meter.at_once());
  meter.add(4);
  EXPECT_EQ(meter.overlap().alone_seconds, 0) << "nothing to compare with yet";
  EXPECT_FALSE(meter.at_once());
  meter.add(1);
  meter.add(2);
  EXPECT_EQ(meter.overlap().alone_seconds, 4);
  EXPECT_EQ(meter.overlap().exposed_seconds, 1.5);
  EXPECT_EQ(meter.overlap().hidden(), 1 - 1.5 / 4);
}

TEST(Overlap, of_one_rank_is_none) {
  OverlapMeter meter(1);
  for (int step = 0; step < 4; ++step) {
    EXPECT_FALSE(meter.at_once());
    meter.add(0);
  }
  EXPECT_EQ(meter.overlap().alone_seconds, 0);
  EXPECT_EQ(meter.overlap().hidden(), 0);
}

}  // namespace
}  // namespace tenon
