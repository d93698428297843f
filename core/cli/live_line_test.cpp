#include "cli/live_line.h"

#include <gtest/gtest.h>

namespace tenon::cli {
namespace {

const std::vector<Field> kFields = {{"step 1/9", 0}, {"loss 2.5", 0}, {"norm 1", 3}, {"", 1}, {"9 ms", 2}};

TEST(LiveLine, drops_the_highest_rank_first_and_cuts_what_is_left) {
  EXPECT_EQ(joined(kFields), "step 1/9  loss 2.5  norm 1  9 ms");
  EXPECT_EQ(fitted(kFields, 32), joined(kFields));
  EXPECT_EQ(fitted(kFields, 31), "step 1/9  loss 2.5  9 ms");
  EXPECT_EQ(fitted(kFields, 24), "step 1/9  loss 2.5  9 ms");
  EXPECT_EQ(fitted(kFields, 23), "step 1/9  loss 2.5");
  EXPECT_EQ(fitted(kFields, 5), "step ");
  EXPECT_EQ(fitted(kFields, 0), "");
  for (size_t columns = 0; columns < 40; ++columns) EXPECT_LE(columns_of(fitted(kFields, columns)), columns);
}

TEST(LiveLine, counts_columns_and_not_bytes) {
  EXPECT_EQ(columns_of("step"), 4u);
  EXPECT_EQ(columns_of("\u00b5s"), 2u);
  EXPECT_EQ(columns_of("\u8a13\u7df4"), 4u) << "wide characters";
  EXPECT_EQ(columns_of("e\u0301"), 1u) << "a combining accent";
  EXPECT_EQ(columns_of("a\xff"
                       "b"),
            3u)
      << "no UTF-8";
  EXPECT_EQ(columns_of("\xe8\xa8"), 2u) << "half a character";
  EXPECT_EQ(fitted({{"\u00b5\u00b5\u00b5", 0}, {"12 \u00b5s", 1}}, 10), "\u00b5\u00b5\u00b5  12 \u00b5s");
}

TEST(LiveLine, never_cuts_within_a_character) {
  EXPECT_EQ(cut_to("\u8a13\u7df4", 3), "\u8a13");
  EXPECT_EQ(cut_to("e\u0301x", 1), "e\u0301");
  EXPECT_EQ(cut_to("abc", 9), "abc");
}

}  // namespace
}  // namespace tenon::cli
