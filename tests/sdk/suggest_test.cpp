#include "tenon_sdk/suggest.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tenon::sdk {
namespace {

TEST(Suggest, distance_counts_edits_and_swaps_of_neighbours) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("wieght_decay", "weight_decay"), 1u);
  EXPECT_EQ(edit_distance("ab", "ba"), 1u);
}

TEST(Suggest, nearest_of_several_is_named) {
  const std::vector<std::string> names = {"beta1", "beta2", "weight_decay", "eps"};
  EXPECT_EQ(closest("wieght_decay", names), "weight_decay");
  EXPECT_EQ(closest("beta_2", names), "beta2");
  EXPECT_EQ(closest("beta", names), "beta1") << "the first of equals";
  EXPECT_EQ(did_you_mean("ep", names), "did you mean 'eps'?");
}

TEST(Suggest, nothing_is_named_when_nothing_is_near) {
  const std::vector<std::string> names = {"beta1", "x"};
  EXPECT_EQ(closest("momentum", names), "");
  EXPECT_EQ(closest("y", names), "") << "one edit that replaces the whole name is not a slip";
  EXPECT_EQ(did_you_mean("momentum", names), "");
  EXPECT_EQ(closest("beta1", {}), "");
  const std::vector<std::string> endless = {std::string(65, 'a')};
  EXPECT_EQ(closest(std::string(64, 'a'), endless), "") << "nobody types that";
}

}  // namespace
}  // namespace tenon::sdk
