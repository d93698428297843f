// Combinations drawn from a kept seed, on virtual ranks: those beyond the grid, with odd sizes and axes in
// any order, equal one device as the grid's cases do; and in exact mode the bits of losses, norms, gradients,
// parameters and states depend neither on the number of data-parallel ranks nor on the stage of ZeRO.
//
// A sample of them are the suites `sample`, all of them `all`. One alone:
//   grid_drawn --gtest_filter='all/*d0123*'
#include <fmt/format.h>

#include "close.hpp"
#include "drawn_cases.h"
#include "draws.h"
#include "further_cases.h"
#include "text_file.hpp"

namespace tenon::test {
namespace {

constexpr uint64_t kCases = 500, kCombinations = 300;
constexpr uint64_t kSampleOfCases = 60, kSampleOfCombinations = 40;
constexpr uint64_t kFurtherCombinations = 16;
constexpr int kMembersOfSample = 2;
constexpr double kTolerance = 1e-10;
constexpr int64_t kSteps = 2;

class Drawn : public testing::TestWithParam<uint64_t> {};

TEST_P(Drawn, equals_one_device) {
  const Case c = drawn_case(GetParam());
  SCOPED_TRACE(c.name());
  const RunRecord one = must_run(alone(c, text_file(c)), {.steps = kSteps});
  const RunRecord many = must_run(together(c, text_file(c)), {.ranks = c.world(), .steps = kSteps});
  EXPECT_EQ(many.disagreements, std::vector<std::string>{});
  expect_close(one, many, Dtype::f64, kTolerance);
  expect_close_tensors(one, many, kTolerance);
}

RunRecord run_exact(const ExactCombination& combination, size_t data, int stage) {
  const Case c = combination.member(data, stage);
  Json recipe = in_f32(together(c, text_file(c)), true);
  recipe["numerics"]["shards"] = combination.shards;
  return must_run(recipe, {.ranks = c.world(), .steps = kSteps});
}

void expect_bits_of(const RunRecord& one, const ExactCombination& combination, size_t data, int stage) {
  SCOPED_TRACE(combination.member(data, stage).name());
  expect_same_bits(one, run_exact(combination, data, stage));
}

class DrawnExact : public testing::TestWithParam<uint64_t> {};

TEST_P(DrawnExact, has_the_same_bits_for_any_ranks_and_stage_of_zero) {
  const ExactCombination combination = drawn_exact(GetParam());
  const RunRecord one = run_exact(combination, 0, 0);
  for (size_t data = 0; data < kDataRanks.size(); ++data) {
    for (int stage = 0; stage <= 3; ++stage) {
      if (data + static_cast<size_t>(stage) > 0) expect_bits_of(one, combination, data, stage);
    }
  }
}

class SampleOfExact : public testing::TestWithParam<uint64_t> {};

TEST_P(SampleOfExact, has_the_same_bits_for_some_ranks_and_stages_of_zero) {
  const ExactCombination combination = drawn_exact(GetParam());
  Draws draws(GetParam());
  const RunRecord one = run_exact(combination, 0, draws.between(0, 3));
  for (int i = 0; i < kMembersOfSample; ++i)
    expect_bits_of(one, combination, static_cast<size_t>(draws.between(1, 3)), draws.between(0, 3));
}

// The number-th combination that goes with a further thing, with it.
ExactCombination drawn_with(const Thing& thing, uint64_t number) {
  for (uint64_t at = 0;; ++at) {
    ExactCombination out = drawn_exact(at);
    if (thing.apply(out.rest) && number-- == 0) return out;
  }
}

class FurtherExact : public testing::TestWithParam<uint64_t> {};

TEST_P(FurtherExact, has_the_same_bits_for_some_ranks_and_stages_of_zero) {
  const Thing& thing = things()[GetParam() % things().size()];
  SCOPED_TRACE(thing.name);
  const ExactCombination combination = drawn_with(thing, GetParam() / things().size());
  Draws draws(GetParam());
  const RunRecord one = run_exact(combination, 0, draws.between(0, 3));
  for (int i = 0; i < kMembersOfSample; ++i)
    expect_bits_of(one, combination, static_cast<size_t>(draws.between(1, 3)), draws.between(0, 3));
}

std::string name_of(const testing::TestParamInfo<uint64_t>& info) {
  return fmt::format("d{:04}_{}", info.param, drawn_case(info.param).name());
}
std::string name_of_exact(const testing::TestParamInfo<uint64_t>& info) {
  return fmt::format("d{:04}_{}", info.param, drawn_exact(info.param).name());
}

INSTANTIATE_TEST_SUITE_P(sample, Drawn, testing::Range(uint64_t{0}, kSampleOfCases), name_of);
INSTANTIATE_TEST_SUITE_P(all, Drawn, testing::Range(uint64_t{0}, kCases), name_of);
INSTANTIATE_TEST_SUITE_P(sample, SampleOfExact, testing::Range(uint64_t{0}, kSampleOfCombinations),
                         name_of_exact);
INSTANTIATE_TEST_SUITE_P(sample, FurtherExact, testing::Range(uint64_t{0}, kFurtherCombinations));
INSTANTIATE_TEST_SUITE_P(all, DrawnExact, testing::Range(uint64_t{0}, kCombinations), name_of_exact);

}  // namespace
}  // namespace tenon::test
