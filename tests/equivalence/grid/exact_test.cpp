// Exact mode on virtual ranks: the bits depend neither on the number of data-parallel ranks nor on the stage
// of ZeRO.
#include "close.hpp"
#include "text_file.hpp"

namespace tenon::test {
namespace {

constexpr int64_t kSteps = 3;

struct Model {
  std::string model, optimizer;
};
void PrintTo(const Model& m, std::ostream* out) { *out << m.model << ' ' << m.optimizer; }

// Wide enough that parameters are longer than the chunks in which norms are added.
Case case_of(const Model& m, int ranks, int stage) {
  Case c;
  c.model = m.model;
  c.sizes.width = 48;
  c.data = {1, ranks, stage > 0};
  c.zero.stage = stage;
  c.optimizer = m.optimizer;
  c.padded = true;
  c.order = {"dp_in"};
  return c;
}

class ExactBits : public testing::TestWithParam<Model> {};

TEST_P(ExactBits, do_not_depend_on_ranks_or_the_stage_of_zero) {
  const std::string text = text_file(case_of(GetParam(), 1, 0));
  const RunRecord one = must_run(in_f32(together(case_of(GetParam(), 1, 0), text), true), {.steps = kSteps});
  for (int ranks : {1, 2, 4, 8}) {
    for (int stage : {0, 1, 2, 3}) {
      if (ranks == 1 && stage == 0) continue;
      SCOPED_TRACE("dp " + std::to_string(ranks) + ", zero " + std::to_string(stage));
      const Json recipe = in_f32(together(case_of(GetParam(), ranks, stage), text), true);
      expect_same_bits(one, must_run(recipe, {.ranks = ranks, .steps = kSteps}));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(models, ExactBits,
                         testing::Values(Model{"gpt2", "sgd"}, Model{"gpt2", "adamw"},
                                         Model{"llama", "adamw"}, Model{"moe", "sgd"}),
                         [](const auto& info) { return info.param.model + "_" + info.param.optimizer; });

}  // namespace
}  // namespace tenon::test
