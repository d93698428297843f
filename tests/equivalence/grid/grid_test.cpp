// The equality grid: every combination of three choices of model, mesh, strategy and schedule, on virtual
// ranks in f64 with the reference kernels, against one device with one microbatch. Loss, norm, every gradient
// and every parameter and state after two steps are within 1e-10, and ranks that hold the same elements hold
// the same bits.
//
// A seeded sample of the cases is the suite `sample`, the others are `rest`; `further` are cases with things
// that the grid does not vary. One case alone:
//   grid --gtest_filter='*c0123*'
#include <fmt/format.h>

#include <map>

#include "base/rng.h"
#include "close.hpp"
#include "further_cases.h"
#include "text_file.hpp"

namespace tenon::test {
namespace {

constexpr size_t kSample = 320;
constexpr double kTolerance = 1e-10;
constexpr int64_t kSteps = 2;

struct Numbered {
  size_t number = 0;
  Case what;
};
void PrintTo(const Numbered& numbered, std::ostream* out) { *out << numbered.what.name(); }

const Result<RunRecord>& one_device(const Case& c) {
  static std::map<std::string, Result<RunRecord>> known;
  const std::string key = key_alone(c);
  const auto it = known.find(key);
  if (it != known.end()) return it->second;
  return known.emplace(key, run_virtual(alone(c, text_file(c)), {.steps = kSteps})).first->second;
}

class EqualityGrid : public testing::TestWithParam<Numbered> {};

TEST_P(EqualityGrid, equals_one_device) {
  const Case& c = GetParam().what;
  const auto& one = one_device(c);
  ASSERT_TRUE(one.ok()) << one.error().text();
  ASSERT_GT(one->steps[0].result.grad_norm, 0.1) << "nothing is clipped";
  const auto many = run_virtual(together(c, text_file(c)), {.ranks = c.world(), .steps = kSteps});
  ASSERT_TRUE(many.ok()) << many.error().text();
  EXPECT_EQ(many->disagreements, std::vector<std::string>{});
  expect_close(*one, *many, Dtype::f64, kTolerance);
  expect_close_tensors(*one, *many, kTolerance);
}

// Ranks that share a sequence hold parts of it: a routing group that spans two would be other tokens.
TEST(RoutingGroups, that_span_parts_of_a_cut_sequence_are_refused) {
  Case c;
  c.model = "moe";
  c.context = {4, "ring"};
  c.optimizer = "sgd";
  c.order = {"cp"};
  Json recipe = together(c, text_file(c));
  for (Json& entry : recipe["model"]["ops"]) {
    if (!entry.contains("repeat")) continue;
    for (Json& op : entry["ops"]) {
      if (op.contains("attrs") && op["attrs"].contains("group")) op["attrs"]["group"] = 4;
    }
  }
  const auto refused = run_virtual(recipe, {.ranks = 4});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().cause,
            "the 2 tokens of a part of a sequence, of which each of 4 ranks has two, are not whole routing "
            "groups of 4");
}

// Cases of the seeded sample come first in a fixed random order.
std::vector<Numbered> numbered(bool sample) {
  const std::vector<Case>& cases = grid().cases;
  const Permutation order(cases.size(), 3);
  std::vector<Numbered> out;
  for (size_t i = 0; i < cases.size(); ++i) {
    if ((order(i) < kSample) == sample) out.push_back({i, cases[i]});
  }
  return out;
}

std::string name_of(const testing::TestParamInfo<Numbered>& info) {
  return fmt::format("c{:04}_{}", info.param.number, info.param.what.name());
}

std::vector<Numbered> numbered_further() {
  std::vector<Numbered> out;
  for (const Further& one : further()) out.push_back({out.size(), one.what});
  return out;
}

std::string name_of_further(const testing::TestParamInfo<Numbered>& info) {
  return fmt::format("{}{:03}_{}", further()[info.param.number].thing, info.param.number,
                     info.param.what.name());
}

INSTANTIATE_TEST_SUITE_P(further, EqualityGrid, testing::ValuesIn(numbered_further()), name_of_further);
INSTANTIATE_TEST_SUITE_P(sample, EqualityGrid, testing::ValuesIn(numbered(true)), name_of);
INSTANTIATE_TEST_SUITE_P(rest, EqualityGrid, testing::ValuesIn(numbered(false)), name_of);

}  // namespace
}  // namespace tenon::test
