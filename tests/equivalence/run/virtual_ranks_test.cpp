// Virtual ranks against one rank: identical bits in exact mode, within the gates in fast mode; loss,
// gradient norm and every gradient; SGD and AdamW, clipping, uneven padding.
#include <cmath>
#include <fstream>

#include "recipes.hpp"
#include "virtual_run.hpp"

namespace tenon::test {
namespace {

// 1,187 bytes: with a context of 12 the last window is short, so ranks have unequal token counts.
std::string corpus() {
  static const std::string path = [] {
    const std::string file = testing::TempDir() + "tenon_equivalence_corpus.txt";
    std::ofstream out(file, std::ios::binary);
    for (int i = 0; i < 1187; ++i) out.put(static_cast<char>('a' + (i * i * 7 + i / 3) % 26));
    return file;
  }();
  return path;
}

struct Case {
  std::string name;
  Json recipe;
};

Json recipe_for(const std::string& model, const std::string& optimizer, const std::string& kernels,
                const std::string& precision, bool exact) {
  TinyModel tiny;
  tiny.dropout = model == "gpt2" ? 0.1 : 0.0;
  tiny.reps = model == "llama" ? 2 : 1;
  tiny.tied = model == "gpt2";
  const auto make = model == "gpt2" ? gpt2_model : model == "moe" ? moe_model : llama_model;
  Json recipe = tiny_recipe(make(tiny), corpus(), tiny.context);
  recipe["optimizer"]["plugin"] = "optimizer/" + optimizer;
  if (optimizer == "sgd") recipe["optimizer"]["options"] = {{"momentum", 0.9}};
  recipe["kernels"]["plugin"] = "kernels/" + kernels;
  recipe["precision"] = precision;
  recipe["numerics"]["mode"] = exact ? "exact" : "fast";
  return recipe;
}

RunRecord must_run(const Json& recipe, RunOptions options) {
  auto record = run_virtual(recipe, options);
  EXPECT_TRUE(record.ok()) << (record.ok() ? "" : record.error().text());
  return record.ok() ? std::move(record).value() : RunRecord{};
}

void expect_same_bits(const RunRecord& a, const RunRecord& b, const std::string& what) {
  ASSERT_EQ(a.steps.size(), b.steps.size()) << what;
  for (size_t s = 0; s < a.steps.size(); ++s) {
    EXPECT_EQ(a.steps[s].result.loss, b.steps[s].result.loss) << what << " loss at step " << s + 1;
    EXPECT_EQ(a.steps[s].result.grad_norm, b.steps[s].result.grad_norm) << what << " norm at step " << s + 1;
    EXPECT_EQ(a.steps[s].result.tokens, b.steps[s].result.tokens) << what;
    for (const auto& [name, gradient] : a.steps[s].gradients) {
      EXPECT_EQ(gradient, b.steps[s].gradients.at(name))
          << what << " gradient of " << name << " at step " << s + 1;
    }
  }
  for (const auto& [name, bytes] : a.tensors) EXPECT_EQ(bytes, b.tensors.at(name)) << what << " " << name;
}

double norm(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += x * x;
  return std::sqrt(sum);
}

// The gate of gradients: |d| <= tol * max(|g|, 1e-3 |all g|).
void expect_gradients_close(const StepRecord& a, const StepRecord& b, Dtype dtype, double tol,
                            const std::string& what) {
  double all = 0;
  for (const auto& [name, bytes] : a.gradients) all += std::pow(norm(as_doubles(bytes, dtype)), 2);
  all = std::sqrt(all);
  for (const auto& [name, bytes] : a.gradients) {
    const auto x = as_doubles(bytes, dtype), y = as_doubles(b.gradients.at(name), dtype);
    std::vector<double> difference(x.size());
    for (size_t i = 0; i < x.size(); ++i) difference[i] = x[i] - y[i];
    EXPECT_LE(norm(difference), tol * std::max(norm(x), 1e-3 * all)) << what << " gradient of " << name;
  }
}

class ExactMode : public testing::TestWithParam<std::tuple<std::string, std::string, std::string>> {};

TEST_P(ExactMode, ranks_do_not_change_the_bits) {
  const auto& [model, optimizer, kernels] = GetParam();
  const Json recipe = recipe_for(model, optimizer, kernels, "f32", true);
  const RunRecord one = must_run(recipe, {.ranks = 1, .threads = 2, .steps = 3});
  ASSERT_EQ(one.steps.size(), 3u);
  for (int ranks : {2, 4, 8}) {
    expect_same_bits(one, must_run(recipe, {.ranks = ranks, .threads = 1, .steps = 3}),
                     std::to_string(ranks) + " ranks");
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
    const RunRecord many = must_run(recipe, {.ranks = ranks, .steps = 3});
    for (size_t s = 0; s < 3 && s < many.steps.size(); ++s) {
      const std::string what = std::to_string(ranks) + " ranks, step " + std::to_string(s + 1);
      EXPECT_NEAR(many.steps[s].result.loss, one.steps[s].result.loss, 1e-10 * one.steps[s].result.loss)
          << what;
      EXPECT_NEAR(many.steps[s].result.grad_norm, one.steps[s].result.grad_norm,
                  1e-10 * one.steps[s].result.grad_norm)
          << what;
      EXPECT_EQ(many.steps[s].result.tokens, one.steps[s].result.tokens) << what;
      expect_gradients_close(one.steps[s], many.steps[s], Dtype::f64, 1e-10, what);
    }
  }
}

TEST_P(FastMode, microbatches_change_nothing_but_rounding) {
  const auto& [model, optimizer] = GetParam();
  Json recipe = recipe_for(model, optimizer, "reference", "f64", false);
  const RunRecord whole = must_run(recipe, {.steps = 2});
  for (int microbatches : {2, 4}) {
    recipe["microbatches"] = microbatches;
    const RunRecord cut = must_run(recipe, {.ranks = 2, .steps = 2});
    for (size_t s = 0; s < 2 && s < cut.steps.size(); ++s) {
      const std::string what = std::to_string(microbatches) + " microbatches";
      EXPECT_NEAR(cut.steps[s].result.loss, whole.steps[s].result.loss, 1e-10 * whole.steps[s].result.loss)
          << what;
      expect_gradients_close(whole.steps[s], cut.steps[s], Dtype::f64, 1e-10, what);
    }
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
    const RunRecord many = must_run(recipe, {.ranks = ranks, .steps = 3});
    ASSERT_EQ(many.steps.size(), 3u);
    EXPECT_EQ(many.disagreements, std::vector<std::string>{});
    for (size_t s = 0; s < 3; ++s) {
      const std::string what = std::to_string(ranks) + " ranks, step " + std::to_string(s + 1);
      const StepResult &a = one.steps[s].result, &b = many.steps[s].result;
      EXPECT_NEAR(b.loss, a.loss, tol * a.loss) << what;
      EXPECT_NEAR(b.grad_norm, a.grad_norm, tol * a.grad_norm) << what;
      expect_gradients_close(one.steps[s], many.steps[s], dtype, tol, what);
    }
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
