#include "base/assert.h"

#include <gtest/gtest.h>

namespace tenon {
namespace {

TEST(Assert, what_holds_passes_and_is_evaluated_only_where_assertions_are_on) {
  int evaluated = 0;
  TENON_ASSERT(++evaluated > 0);
  EXPECT_EQ(evaluated, kAssertions ? 1 : 0);
}

TEST(AssertDeathTest, what_does_not_hold_ends_the_process_and_names_condition_and_place) {
  if (!kAssertions) {
    TENON_ASSERT(1 + 1 == 3);  // nothing happens
    return;
  }
  EXPECT_DEATH(TENON_ASSERT(1 + 1 == 3), "assert_test.cpp:[0-9]+: this must hold: 1 \\+ 1 == 3");
}

}  // namespace
}  // namespace tenon
