// Virtual ranks against one rank: identical bits in exact mode, within the gates in fast mode; loss,
// gradient norm and every gradient; SGD and AdamW, clipping, uneven padding.
#include <cmath>

#include "close.hpp"
#include "recipes.hpp"

namespace tenon::test {
namespace {

Json recipe_for(const std::string& model, const std::string& optimizer, const std::string& kernels,
                const std::string& precision, bool exact) {
  TinyModel tiny;
  tiny.dropout = model == "gpt2" ? 0.1 : 0.0;
  tiny.reps = model == "llama" ? 2 : 1;
  tiny.tied = model == "gpt2";
  const auto make = model == "gpt2" ? gpt2_model : model == "moe" ? moe_model : llama_model;
  Json recipe = tiny_recipe(make(tiny), corpus_file(), tiny.context);
  recipe["optimizer"]["plugin"] = "optimizer/" + optimizer;
  if (optimizer == "sgd") recipe["optimizer"]["options"] = {{"momentum", 0.9}};
  recipe["kernels"]["plugin"] = "kernels/" + kernels;
  recipe["precision"] = precision;
  recipe["numerics"]["mode"] = exact ? "exact" : "fast";
  return recipe;
}

class ExactMode : public testing::TestWithParam<std::tuple<std::string, std::string, std::string>> {};

TEST_P(ExactMode, ranks_do_not_change_the_bits) {
  const auto& [model, optimizer, kernels] = GetParam();
  const Json recipe = recipe_for(model, optimizer, kernels, "f32", true);
  const RunRecord one = must_run(recipe, {.ranks = 1, .threads = 2, .steps = 3});
  for (int ranks : {2, 4, 8}) {
    SCOPED_TRACE(ranks);
    expect_same_bits(one, must_run(recipe, {.ranks = ranks, .threads = 1, .steps = 3}));
  }
}

INSTANTIATE_TEST_SUITE_P(
    models, ExactMode,
    testing::Values(std::tuple{"gpt2", "adamw", "reference"}, std::tuple{"llama", "sgd", "reference"},
                    std::tuple{"gpt2", "sgd", "cpu"}, std::tuple{"llama", "adamw", "cpu"},
                    std::tuple{"moe", "sgd", "reference"}, std::tuple{"moe", "adamw", "cpu"}));

class FastMode : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(FastMode, f64_gradients_are_within_1e_10) {
  const auto& [model, optimizer] = GetParam();
  const Json recipe = recipe_for(model, optimizer, "reference", "f64", false);
  const RunRecord one = must_run(recipe, {.steps = 3});
  for (int ranks : {2, 4, 8}) {
    SCOPED_TRACE(ranks);
    expect_close(one, must_run(recipe, {.ranks = ranks, .steps = 3}), Dtype::f64, 1e-10);
  }
}

TEST_P(FastMode, microbatches_change_nothing_but_rounding) {
  const auto& [model, optimizer] = GetParam();
  Json recipe = recipe_for(model, optimizer, "reference", "f64", false);
  const RunRecord whole = must_run(recipe, {.steps = 2});
  for (int microbatches : {2, 4}) {
    SCOPED_TRACE(microbatches);
    recipe["microbatches"] = microbatches;
    expect_close(whole, must_run(recipe, {.ranks = 2, .steps = 2}), Dtype::f64, 1e-10);
  }
}

INSTANTIATE_TEST_SUITE_P(models, FastMode,
                         testing::Values(std::tuple{"gpt2", "adamw"}, std::tuple{"llama", "sgd"},
                                         std::tuple{"gpt2", "sgd"}, std::tuple{"llama", "adamw"},
                                         std::tuple{"moe", "sgd"}, std::tuple{"moe", "adamw"}));

class ExpertParallel : public testing::TestWithParam<std::tuple<std::string, std::string, int>> {};

TEST_P(ExpertParallel, experts_over_the_batch_axis_change_nothing_but_rounding) {
  const auto& [kernels, precision, microbatches] = GetParam();
  const Dtype dtype = precision == "f64" ? Dtype::f64 : Dtype::f32;
  const double tol = precision == "f64" ? 1e-10 : 1e-4;
  Json recipe = recipe_for("moe", "adamw", kernels, precision, false);
  const RunRecord one = must_run(recipe, {.steps = 3});
  recipe["strategies"].push_back({{"plugin", "parallel/expert"}, {"options", Json::object()}});
  recipe["microbatches"] = microbatches;
  for (int ranks : {1, 2, 4}) {
    SCOPED_TRACE(ranks);
    const RunRecord many = must_run(recipe, {.ranks = ranks, .steps = 3});
    EXPECT_EQ(many.disagreements, std::vector<std::string>{});
    expect_close(one, many, dtype, tol);
  }
}

INSTANTIATE_TEST_SUITE_P(kernels, ExpertParallel,
                         testing::Values(std::tuple{"reference", "f64", 1}, std::tuple{"reference", "f64", 2},
                                         std::tuple{"cpu", "f64", 1}));

// A balanced router has an auxiliary loss of its coefficient for every token and layer, and this one is
// nearly balanced before it has learned anything.
TEST(moe, the_auxiliary_loss_is_part_of_the_loss) {
  Json recipe = recipe_for("moe", "sgd", "reference", "f64", false);
  const auto first_loss = [&recipe](double aux) {
    for (Json& op : recipe["model"]["ops"][1]["ops"]) {
      if (op["op"] == "route_topk") op["attrs"]["aux"] = aux;
    }
    return must_run(recipe, {.steps = 1}).steps.at(0).result.loss;
  };
  const double without = first_loss(0), with = first_loss(0.05), more = first_loss(0.1);
  EXPECT_GT(with - without, 2 * 0.05 * 0.95);
  EXPECT_LT(with - without, 2 * 0.05 * 2);
  EXPECT_NEAR(more - without, 2 * (with - without), 1e-12);
}

TEST(fast_mode, f32_kernels_on_2_ranks_agree_with_one_within_1e_6_of_the_largest) {
  const Json recipe = recipe_for("gpt2", "sgd", "cpu", "f32", false);
  const RunRecord one = must_run(recipe, {.steps = 1});
  const RunRecord two = must_run(recipe, {.ranks = 2, .steps = 1});
  double largest = 0, difference = 0;
  for (const auto& [name, bytes] : one.steps.at(0).gradients) {
    const auto x = as_doubles(bytes, Dtype::f32),
               y = as_doubles(two.steps.at(0).gradients.at(name), Dtype::f32);
    for (size_t i = 0; i < x.size(); ++i) {
      largest = std::max(largest, std::abs(x[i]));
      difference = std::max(difference, std::abs(x[i] - y[i]));
    }
  }
  EXPECT_GT(largest, 0);
  EXPECT_LE(difference, 1e-6 * largest);
}

TEST(exact_mode, batch_that_does_not_divide_names_the_nearest) {
  Json recipe = recipe_for("gpt2", "sgd", "reference", "f32", true);
  recipe["batch"] = 12;
  const auto record = run_virtual(recipe, {.ranks = 1});
  ASSERT_FALSE(record.ok());
  EXPECT_EQ(record.error().text(),
            "error[P010]: batch 12 is not divisible by 8 (logical shards of exact mode)\n  --> /batch\n  "
            "fix: nearest: 8 or 16");
}

}  // namespace
}  // namespace tenon::test
