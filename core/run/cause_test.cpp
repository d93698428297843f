#include "run/cause.h"

#include <gtest/gtest.h>

#include <vector>

namespace tenon {
namespace {

struct Heard {
  int64_t rank;
  tenon_code kind;
};

// The rank whose error matters of those heard, in the order in which they were heard; -1: none.
int64_t cause_of(const std::vector<Heard>& all) {
  Cause cause;
  for (const Heard& one : all) cause.hear(one.rank, {"X000", std::to_string(one.rank), "", "", one.kind});
  return cause.error() ? std::stoll(cause.error()->cause) : -1;
}

TEST(Cause, of_silence_is_none) { EXPECT_EQ(cause_of({}), -1); }

TEST(Cause, is_what_a_rank_ran_into_whenever_it_is_heard) {
  for (const tenon_code own :
       {TENON_E_UNKNOWN, TENON_E_IO, TENON_E_STATE, TENON_E_MEMORY, TENON_E_CHECKPOINT}) {
    for (const tenon_code hearsay : {TENON_E_ABORTED, TENON_E_PEER, TENON_E_TIMEOUT}) {
      EXPECT_EQ(cause_of({{0, hearsay}, {1, own}, {2, hearsay}}), 1) << own << " " << hearsay;
      EXPECT_EQ(cause_of({{1, own}, {0, hearsay}}), 1) << own << " " << hearsay;
    }
  }
}

TEST(Cause, is_a_peer_that_was_missed_before_an_order_to_stop) {
  for (const tenon_code missed : {TENON_E_PEER, TENON_E_TIMEOUT}) {
    EXPECT_EQ(cause_of({{0, TENON_E_ABORTED}, {1, missed}, {2, TENON_E_ABORTED}}), 1);
    EXPECT_EQ(cause_of({{1, missed}, {0, TENON_E_ABORTED}}), 1);
  }
}

TEST(Cause, of_ranks_that_fail_alike_is_the_lowest_ones) {
  EXPECT_EQ(cause_of({{2, TENON_E_STATE}, {0, TENON_E_STATE}, {1, TENON_E_STATE}}), 0);
  EXPECT_EQ(cause_of({{2, TENON_E_STATE}, {1, TENON_E_IO}}), 1);
}

TEST(Cause, of_ranks_that_miss_one_another_is_the_first_heard) {
  EXPECT_EQ(cause_of({{2, TENON_E_TIMEOUT}, {0, TENON_E_PEER}, {1, TENON_E_TIMEOUT}}), 2);
  EXPECT_EQ(cause_of({{1, TENON_E_ABORTED}, {0, TENON_E_ABORTED}}), 1);
}

}  // namespace
}  // namespace tenon
