// Cases of the grid as users run them: processes joined by UCX, f32, the fast kernels, through the command.
// Gates: from identical weights, at steps 1, 10 and 50, gradients within 1e-6 of the largest, tensor by
// tensor in the 2-norm; 50 steps in a row, each loss within 1e-5 (AdamW too: its eps is 1e-3 here; ten steps
// where there is a router). In exact mode: the same bits.
#include <fmt/format.h>

#include <cmath>

#include "run/checkpoint/load.h"
#include "text_file.hpp"
#include "workplace.hpp"

namespace tenon::test {
namespace {

constexpr size_t kCombinations = 22;
constexpr int64_t kSteps = 50;
// After some steps rounding decides between two experts that a router likes alike, and the losses part.
constexpr size_t kStepsOfRouters = 10;
constexpr int kMostProcesses = 4;

// Cases of two to four ranks, each the one that brings most choices not seen before.
std::vector<Case> combinations() {
  const Grid small = make_grid(kMostProcesses);
  const auto& choices = small.array.cases;
  const auto& cases = small.cases;
  std::set<std::pair<size_t, int>> seen;
  std::vector<Case> out;
  std::set<size_t> taken;
  while (out.size() < kCombinations) {
    size_t best = 0;
    int most = -1;
    for (size_t i = 0; i < cases.size(); ++i) {
      if (cases[i].world() < 2 || taken.contains(i)) continue;
      int fresh = 0;
      for (size_t f = 0; f < choices[i].size(); ++f) fresh += seen.contains({f, choices[i][f]}) ? 0 : 1;
      if (fresh > most) {
        most = fresh;
        best = i;
      }
    }
    taken.insert(best);
    for (size_t f = 0; f < choices[best].size(); ++f) seen.insert({f, choices[best][f]});
    out.push_back(cases[best]);
  }
  return out;
}

// The rate is low: once a model knows the text by heart, gradients are what cancelling leaves, and rounding
// shows.
Json processes_recipe(Json recipe, int64_t steps, int64_t save_every) {
  recipe["comm"]["plugin"] = "comm/ucx";
  recipe["steps"] = steps;
  recipe["save"] = {{"every", save_every}, {"keep", 100}};
  recipe["lr"] = {{"kind", "cosine"}, {"peak", 0.01}, {"floor", 0.001}, {"warmup", 2}, {"steps", kSteps}};
  return recipe;
}

CommandRecord train_on(const Workplace& place, const std::string& run, const Json& recipe, int ranks) {
  place.write(run + ".json", recipe.dump());
  return record_of(place, run,
                   {"train", run + ".json", "--json", "-n", std::to_string(ranks), "--run-dir", run});
}

// One step of `recipe` from the weights that `from` saved at step `step` - 1.
CommandRecord one_step_on(const Workplace& place, const std::string& from, int64_t step, const Json& recipe,
                          int ranks, const std::string& run) {
  if (step == 1) return train_on(place, run, recipe, ranks);
  std::filesystem::create_directories(place.at(run) + "/checkpoints");
  for (const auto& entry : std::filesystem::directory_iterator(place.at(from) + "/checkpoints")) {
    if (checkpoint::step_of(entry.path().filename()) != step - 1) continue;
    std::filesystem::copy(entry.path(), place.at(run) + "/checkpoints/" + entry.path().filename().string(),
                          std::filesystem::copy_options::recursive);
  }
  json description = json::parse(place.read(from + "/run.json"));
  description["recipe"] = recipe;
  description["ranks"] = ranks;
  place.write(run + "/run.json", description.dump());
  return record_of(place, run, {"resume", run, "--json", "-n", std::to_string(ranks)});
}

double norm_of(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += x * x;
  return std::sqrt(sum);
}

std::vector<double> floats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return {values.begin(), values.end()};
}

// The optimizer's mean of gradients forgets all but the newest: so what it saves are this step's gradients.
Json forgetful(Json recipe) {
  Json& options = recipe["optimizer"]["options"];
  if (options.contains("momentum"))
    options["momentum"] = 1e-30;  // at 0 there would be no mean
  else
    options["beta1"] = 0.0;
  return recipe;
}

void expect_close_gradients(const SavedState& one, const SavedState& many, const std::string& slot) {
  double largest = 0, worst = 0;
  ASSERT_EQ(many.step, one.step);
  for (const auto& [name, bytes] : one.tensors) {
    if (!name.ends_with(slot)) continue;
    ASSERT_TRUE(many.tensors.contains(name)) << name;
    auto x = floats(bytes);
    const auto y = floats(many.tensors.at(name));
    ASSERT_EQ(x.size(), y.size());
    largest = std::max(largest, norm_of(x));
    for (size_t i = 0; i < x.size(); ++i) x[i] -= y[i];
    worst = std::max(worst, norm_of(x));
  }
  EXPECT_GT(largest, 0);
  EXPECT_LE(worst, 1e-6 * largest) << "step " << one.step;
  std::printf("step %lld: gradients differ by %.2g of the largest\n", static_cast<long long>(one.step),
              worst / largest);
}

class Processes : public testing::TestWithParam<Case> {};

TEST_P(Processes, compute_what_one_process_computes) {
  const Case& c = GetParam();
  const Workplace place;
  place.write("grid.txt", text_of(c));
  const std::string text = place.at("grid.txt");
  const Json single = in_f32(alone(c, text), false), recipe = in_f32(together(c, text), false);
  const CommandRecord one = train_on(place, "one", processes_recipe(single, kSteps, 1), 1);
  ASSERT_EQ(one.steps.size(), static_cast<size_t>(kSteps));
  const CommandRecord many = train_on(place, "many", processes_recipe(recipe, kSteps, kSteps), c.world());
  ASSERT_EQ(many.steps.size(), one.steps.size());
  const size_t comparable = c.model == "moe" ? kStepsOfRouters : one.steps.size();
  for (size_t i = 0; i < comparable; ++i) {
    EXPECT_EQ(many.steps[i].tokens, one.steps[i].tokens);
    EXPECT_NEAR(many.steps[i].loss, one.steps[i].loss, 1e-5 * one.steps[i].loss) << "step " << i + 1;
  }
  for (int64_t step : {1, 10, 50}) {
    const auto from_same_weights = [&](const Json& what, int ranks, const std::string& run) {
      const Json last = forgetful(processes_recipe(what, step, 1));
      return one_step_on(place, "one", step, last, ranks, run + std::to_string(step)).saved;
    };
    expect_close_gradients(from_same_weights(single, 1, "one"), from_same_weights(recipe, c.world(), "many"),
                           c.optimizer == "sgd" ? "sgd.momentum" : "adamw.exp_avg");
  }
}

INSTANTIATE_TEST_SUITE_P(grid, Processes, testing::ValuesIn(combinations()),
                         [](const auto& info) { return info.param.name(); });

// Bytes saved and numbers printed, on 1, 2 and 4 processes and with each stage of ZeRO.
TEST(ExactProcesses, bits_do_not_depend_on_ranks_or_the_stage_of_zero) {
  for (const std::string optimizer : {"sgd", "adamw"}) {
    const Workplace place;
    Case c;
    c.model = "gpt2";
    c.sizes.width = 48;
    c.optimizer = optimizer;
    c.padded = true;
    c.order = {"dp_in"};
    place.write("grid.txt", text_of(c));
    const auto recipe_of = [&](int ranks, int stage) {
      c.data = {1, ranks};
      c.zero.stage = stage;
      return processes_recipe(in_f32(together(c, place.at("grid.txt")), true), 3, 3);
    };
    const CommandRecord one = train_on(place, "one", recipe_of(1, 0), 1);
    ASSERT_EQ(one.steps.size(), 3u);
    for (int ranks : {2, 4}) {
      for (int stage : {0, 1, 2, 3}) {
        const std::string run = fmt::format("dp{}_zero{}", ranks, stage);
        SCOPED_TRACE(optimizer + " " + run);
        const CommandRecord many = train_on(place, run, recipe_of(ranks, stage), ranks);
        EXPECT_EQ(many.steps, one.steps);
        expect_same(many.saved, one.saved, run);
      }
    }
  }
}

}  // namespace
}  // namespace tenon::test
