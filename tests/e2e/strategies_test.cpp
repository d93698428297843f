// What `tenon check` says to meshes, strategies and schedules that do not fit the model or each other: code, recipe
// line, and what to do. No rank has to exist for that.
#include "e2e/workplace.hpp"

namespace tenon::test {
namespace {

constexpr const char* kMesh = "mesh = t.mesh { dp = p.dp },";

// Checks the recipe with another mesh line; gives standard error without the drawn lines of the recipe.
std::string refusal(const std::string& mesh, int ranks, const std::vector<std::string>& arguments = {}) {
  const Workplace place;
  place.write_changed("r.lua", kMesh, mesh);
  std::vector<std::string> command{"check", "r.lua", "-n", std::to_string(ranks)};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const CommandResult result = place.run(command);
  EXPECT_EQ(result.code, 2) << result.out << result.err;
  std::string out;
  std::istringstream lines(result.err);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" | ") == std::string::npos && !line.ends_with(" |")) out += line + "\n";
  }
  return out;
}

TEST(Strategies, a_mesh_of_several_axes_that_does_not_multiply_to_the_ranks) {
  EXPECT_EQ(refusal("mesh = t.mesh { dp = 2, tp = 2 }, strategies = { t.strategy.data {}, t.strategy.tensor {} },", 3), "");
}

TEST(Strategies, tensor_over_more_ranks_than_groups_of_heads) {
  EXPECT_EQ(refusal("mesh = t.mesh { tp = 4 }, strategies = { t.strategy.tensor {} },", 4), "");
}

TEST(Strategies, tensor_over_a_vocabulary_that_does_not_divide) {
  EXPECT_EQ(refusal("mesh = t.mesh { tp = 2 }, strategies = { t.strategy.tensor {} },", 2, {"vocab=257"}), "");
}

TEST(Strategies, tensor_over_a_width_that_does_not_divide) {
  EXPECT_EQ(refusal("mesh = t.mesh { tp = 3 },\n"
                    "  strategies = { t.strategy.tensor { attention = \"replicate\", vocabulary = false } },", 3), "");
}

TEST(Strategies, more_stages_than_layers) {
  EXPECT_EQ(refusal("mesh = t.mesh { pp = 4 }, strategies = { t.strategy.pipeline {} },", 4), "");
}

TEST(Strategies, layers_by_hand_that_do_not_add_up) {
  EXPECT_EQ(refusal("mesh = t.mesh { pp = 2 },\n  strategies = { t.strategy.pipeline { layers = \"1,2\" } },", 2), "");
}

TEST(Strategies, a_context_that_does_not_divide) {
  EXPECT_EQ(refusal("mesh = t.mesh { cp = 3 }, strategies = { t.strategy.context {} },", 3), "");
}

TEST(Strategies, an_axis_that_the_mesh_lacks) {
  EXPECT_EQ(refusal("mesh = t.mesh { dp = 2 }, strategies = { t.strategy.data {}, t.strategy.tensor {} },", 2), "");
}

TEST(Strategies, one_that_needs_another) {
  EXPECT_EQ(refusal("mesh = t.mesh { dp = 2 }, strategies = { t.strategy.zero {} },", 2), "");
}

TEST(Strategies, two_that_disagree) {
  EXPECT_EQ(refusal("mesh = t.mesh { dp = 2 },\n"
                    "  strategies = { t.strategy.data {}, t.strategy.context { axis = \"dp\" } },", 2), "");
}

TEST(Strategies, experts_of_a_model_without_any) {
  EXPECT_EQ(refusal("mesh = t.mesh { dp = 2 },\n  strategies = { t.strategy.data {}, t.strategy.expert {} },", 2), "");
}

TEST(Strategies, a_schedule_without_a_pipeline) {
  EXPECT_EQ(refusal("mesh = t.mesh { dp = 2 }, schedule = t.schedule \"1f1b\",", 2), "");
}

TEST(Strategies, a_schedule_that_runs_other_numbers_of_stages) {
  EXPECT_EQ(refusal("mesh = t.mesh { pp = 2 }, schedule = t.schedule \"interleaved\",\n"
                    "  strategies = { t.strategy.pipeline {} },", 2), "");
}

TEST(Strategies, rows_for_another_pipeline) {
  EXPECT_EQ(refusal("mesh = t.mesh { pp = 2 }, schedule = { rows = { \"F0.0 B0.0\" } },\n"
                    "  strategies = { t.strategy.pipeline {} },", 2), "");
}

TEST(Strategies, rows_in_which_ranks_wait_for_each_other) {
  EXPECT_EQ(refusal("mesh = t.mesh { pp = 2 }, schedule = { rows = { \"B0.0 F0.0\", \"F1.0 B1.0\" } },\n"
                    "  strategies = { t.strategy.pipeline {} },", 2), "");
}

}  // namespace
}  // namespace tenon::test
