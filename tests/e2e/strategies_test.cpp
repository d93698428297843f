// What `tenon check` says to meshes, strategies and schedules that do not fit the model or each other: code,
// recipe line, and what to do. No rank has to exist for that.
#include "workplace.hpp"

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
  EXPECT_EQ(
      refusal("mesh = t.mesh { dp = 2, tp = 2 }, strategies = { t.strategy.data {}, t.strategy.tensor {} },",
              3),
      "error[P001]: mesh dp 2 x tp 2 does not multiply to the 3 ranks started\n  --> r.lua:30:3\n"
      "  fix: start 4 ranks, or change the mesh\n");
}

TEST(Strategies, tensor_over_more_ranks_than_groups_of_heads) {
  EXPECT_EQ(refusal("mesh = t.mesh { tp = 4 }, strategies = { t.strategy.tensor {} },", 4),
            "error[P003]: parallel/tensor: 'h.0.attn.q.weight': 2 groups of query heads that share keys and "
            "values, 1 in each, cannot be dealt out over tp 4: use a smaller tp, or attention = "
            "\"replicate\"\n  --> r.lua:30:44\n");
}

TEST(Strategies, tensor_over_a_vocabulary_that_does_not_divide) {
  EXPECT_EQ(refusal("mesh = t.mesh { tp = 2 }, strategies = { t.strategy.tensor {} },", 2, {"vocab=257"}),
            "error[P003]: parallel/tensor: 'wte.weight': vocab 257 is not divisible by tp 2: pad the model's "
            "vocabulary to "
            "258, or set vocabulary = false\n  --> r.lua:30:44\n");
}

TEST(Strategies, tensor_over_a_width_that_does_not_divide) {
  EXPECT_EQ(refusal("mesh = t.mesh { tp = 3 },\n"
                    "  strategies = { t.strategy.tensor { attention = \"replicate\", vocabulary = false } },",
                    3),
            "error[P003]: parallel/tensor: 'h.0.mlp.c_fc.weight': ffn 64 is not divisible by tp 3: choose "
            "another width, or a "
            "smaller tp\n  --> r.lua:31:18\n");
}

TEST(Strategies, one_axis_for_stages_and_for_what_is_cut) {
  EXPECT_EQ(refusal("mesh = t.mesh { dp = 2 },\n"
                    "  strategies = { t.strategy.data {}, t.strategy.pipeline { axis = \"dp\" } },",
                    2),
            "error[P003]: parallel/data cuts 'tokens' over dp, over which parallel/pipeline spreads stages\n"
            "  --> r.lua:31:18\n  fix: give each of them an axis of its own\n");
}

TEST(Strategies, more_stages_than_layers) {
  EXPECT_EQ(
      refusal("mesh = t.mesh { pp = 4 }, strategies = { t.strategy.pipeline {} },", 4),
      "error[P003]: parallel/pipeline: 4 stages for 2 layers: use at most 2 stages\n  --> r.lua:30:44\n");
}

TEST(Strategies, layers_by_hand_that_do_not_add_up) {
  EXPECT_EQ(
      refusal("mesh = t.mesh { pp = 2 },\n  strategies = { t.strategy.pipeline { layers = \"1,2\" } },", 2),
      "error[P003]: parallel/pipeline: layers = \"1,2\" names 2 stages with 3 layers; the pipeline has 2 "
      "stages, the "
      "model 2 layers: give 2 numbers that add up to 2\n  --> r.lua:31:18\n");
}

TEST(Strategies, a_context_that_does_not_divide) {
  EXPECT_EQ(
      refusal("mesh = t.mesh { cp = 3 }, strategies = { t.strategy.context {} },", 3),
      "error[P010]: context 16 is not divisible by 6 (two parts for each of 3 ranks that share a sequence)\n"
      "  --> r.lua:25:37\n  fix: nearest: 12 or 18\n");
}

TEST(Strategies, an_axis_that_the_mesh_lacks) {
  EXPECT_EQ(
      refusal("mesh = t.mesh { dp = 2 }, strategies = { t.strategy.data {}, t.strategy.tensor {} },", 2),
      "error[P003]: parallel/tensor: the mesh has no axis 'tp': add it to mesh, or set axis to one of its\n"
      "  --> r.lua:30:64\n");
}

TEST(Strategies, one_that_needs_another) {
  EXPECT_EQ(
      refusal("mesh = t.mesh { dp = 2 }, strategies = { t.strategy.zero {} },", 2),
      "error[P004]: parallel/zero needs 'data', which no strategy of the recipe provides\n  --> r.lua:30:29\n"
      "  fix: add a strategy that provides it\n");
}

TEST(Strategies, two_that_disagree) {
  EXPECT_EQ(refusal("mesh = t.mesh { dp = 2 },\n"
                    "  strategies = { t.strategy.data {}, t.strategy.context { axis = \"dp\" } },",
                    2),
            "error[P003]: parallel/context: wants 'tokens' sharded by seq over dp, but parallel/data has it "
            "sharded by batch\n"
            "  --> r.lua:31:38\n  fix: let the two use different axes, or remove one of them\n");
}

TEST(Strategies, experts_of_a_model_without_any) {
  EXPECT_EQ(
      refusal("mesh = t.mesh { dp = 2 },\n  strategies = { t.strategy.data {}, t.strategy.expert {} },", 2),
      "error[P003]: parallel/expert: the model has no experts (no grouped_linear has a weight with a "
      "dimension named "
      "'expert'): remove the strategy, or use a model that has some\n  --> r.lua:31:38\n");
}

TEST(Strategies, a_schedule_without_a_pipeline) {
  EXPECT_EQ(refusal("mesh = t.mesh { dp = 2 }, schedule = \"schedule/1f1b\",", 2),
            "error[P031]: a schedule is named, but no strategy makes stages\n  --> r.lua:30:29\n"
            "  fix: add parallel/pipeline to the strategies, or remove the schedule\n");
}

TEST(Strategies, a_schedule_that_runs_other_numbers_of_stages) {
  EXPECT_EQ(refusal("mesh = t.mesh { pp = 2 }, schedule = \"schedule/interleaved\",\n"
                    "  strategies = { t.strategy.pipeline {} },",
                    2),
            "error[S001]: schedule/interleaved: 2 stages on 2 pipeline ranks, but this schedule runs several "
            "on each, the "
            "same number: set stages to 4 or a higher multiple of the ranks, or use schedule/1f1b for one\n"
            "  --> r.lua:30:29\n");
}

TEST(Strategies, rows_for_another_pipeline) {
  EXPECT_EQ(
      refusal("mesh = t.mesh { pp = 2 }, schedule = { rows = { \"F0.0 B0.0\" } },\n"
              "  strategies = { t.strategy.pipeline {} },",
              2),
      "error[P032]: the rows are for 1 ranks and 1 stages, the pipeline has 2 and 2\n  --> r.lua:30:42\n"
      "  fix: give 2 lists, one for each rank, with the stages 0 to 1\n");
}

TEST(Strategies, rows_in_which_ranks_wait_for_each_other) {
  EXPECT_EQ(refusal("mesh = t.mesh { pp = 2 }, schedule = { rows = { \"B0.0 F0.0\", \"F1.0 B1.0\" } },\n"
                    "  strategies = { t.strategy.pipeline {} },",
                    2),
            "error[S007]: ranks would wait for ever: row 1 (B0.0) of rank 0 needs row 2 (F0.0) of rank 0, "
            "which stands behind "
            "row 1\n  --> r.lua:30:29\n  fix: put every row behind what it needs: F behind F of the stage "
            "before, I or B "
            "behind its F and behind I or B of the stage after, W behind its I\n");
}

}  // namespace
}  // namespace tenon::test
