// When a slot of a ring may be used again: once all members are done with what was in it, in whatever order
// they end operations.
#include "board.h"

#include <gtest/gtest.h>

namespace tenon::comm_ucx {
namespace {

class Slots : public testing::Test {
 protected:
  static constexpr Ring::Shape kShape{2, 4, 64};
  std::vector<Part> memory = std::vector<Part>(kShape.bytes() / sizeof(Part));
  Sequence a = member(0), b = member(1);

  Sequence member(int place) { return {{reinterpret_cast<std::byte*>(memory.data()), kShape}, 2, place}; }
  // `from` tells the other as if it posted.
  static void tell(Sequence& to, const Sequence& from, int place) { to.hear(place, from.finished()); }
};

TEST_F(Slots, are_free_in_the_first_round) {
  for (uint64_t x = 0; x < 4; ++x) EXPECT_TRUE(a.slot_is_free_for(x)) << x;
  EXPECT_FALSE(a.slot_is_free_for(4));
}

TEST_F(Slots, are_free_again_once_all_are_done) {
  a.set_done(0);
  EXPECT_FALSE(a.slot_is_free_for(4)) << "b is not done";
  b.set_done(0);
  EXPECT_TRUE(a.slot_is_free_for(4));
  EXPECT_FALSE(a.slot_is_free_for(5));
}

TEST_F(Slots, stay_in_use_by_an_operation_that_later_ones_overtake) {
  for (Sequence* member : {&a, &b}) member->set_done(1);
  a.set_done(0);
  EXPECT_TRUE(a.slot_is_free_for(5));
  EXPECT_FALSE(a.slot_is_free_for(4)) << "b is not done with 0, though with 1";
  tell(a, b, 1);
  EXPECT_FALSE(a.slot_is_free_for(4));
  b.set_done(0);
  EXPECT_TRUE(a.slot_is_free_for(4));
}

TEST_F(Slots, are_known_to_be_free_from_what_others_tell) {
  for (uint64_t x : {0, 2, 1}) b.set_done(x);
  EXPECT_EQ(b.finished(), 3);
  for (uint64_t x = 0; x < 4; ++x) a.set_done(x);
  tell(a, b, 1);
  EXPECT_TRUE(a.slot_is_free_for(6));
  EXPECT_FALSE(a.slot_is_free_for(7));
}

// 5 is in the slot of 1, and ends before 0.
TEST_F(Slots, are_counted_over_the_end_of_the_ring) {
  for (Sequence* member : {&a, &b}) {
    for (uint64_t x : {1, 2, 3, 5, 0}) member->set_done(x);
    EXPECT_EQ(member->finished(), 4);
    member->set_done(4);
    EXPECT_EQ(member->finished(), 6);
  }
}

}  // namespace
}  // namespace tenon::comm_ucx
