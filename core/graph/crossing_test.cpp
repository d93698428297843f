#include "graph/crossing.h"

#include <gtest/gtest.h>

namespace tenon {
namespace {

const Mesh kMesh{{{"x", 2}, {"y", 4}}};
const std::vector<AxisId> kNoneFirst;

Placement sharded(std::vector<std::vector<AxisId>> dims, std::vector<AxisId> partial = {}) {
  Placement out{std::move(dims), {}};
  for (AxisId axis : partial) out.add_partial(axis, Reduction::sum);
  return out;
}
const Placement kWhole = sharded({{}, {}}), kRows = sharded({{1}, {}}), kColumns = sharded({{}, {1}}),
                kSum = sharded({{}, {}}, {1});

std::string form(const Placement& made, const std::vector<Placement>& read) {
  const Routes routes(kMesh, kNoneFirst);
  return text(crossing_form(routes, kMesh, {made, read}), {{"a", 8}, {"b", 8}}, kMesh);
}

TEST(CrossingForm, IsWhatIsReadWhereThatIsOneThing) {
  EXPECT_EQ(form(kWhole, {kWhole}), "R");
  EXPECT_EQ(form(kSum, {kWhole}), "R");
  EXPECT_EQ(form(kSum, {kRows}), "S(a)@y");
  EXPECT_EQ(form(kWhole, {kRows}), "S(a)@y");
}

TEST(CrossingForm, IsThePartOfWhichTheWholeIsGathered) {
  EXPECT_EQ(form(kRows, {kWhole}), "S(a)@y");
  EXPECT_EQ(form(kRows, {kRows, kWhole}), "S(a)@y");
  EXPECT_EQ(form(kSum, {kWhole, kRows}), "S(a)@y");
  EXPECT_EQ(form(sharded({{0}, {}}, {1}), {sharded({{0}, {}}), sharded({{0, 1}, {}})}), "S(a)@x,y");
}

TEST(CrossingForm, StaysAPartialSumWhereOneReadsItSo) {
  EXPECT_EQ(form(kSum, {kSum, kWhole}), "P@y");
  EXPECT_EQ(form(kSum, {kRows, kSum}), "P@y");
}

TEST(CrossingForm, OfWhatIsWholeIsNotCutIfAnybodyReadsItWhole) {
  EXPECT_EQ(form(kWhole, {kRows, kWhole}), "R");
  EXPECT_EQ(form(kWhole, {kRows, kColumns}), "S(a)@y");
}

TEST(CrossingForm, OfTwoEquallySmallOnesHasFewerCollectives) {
  EXPECT_EQ(form(kRows, {kColumns}), "S(b)@y");
  EXPECT_EQ(form(kRows, {kRows, kColumns}), "S(a)@y");
}

}  // namespace
}  // namespace tenon
