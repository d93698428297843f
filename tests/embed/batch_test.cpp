// Steps on samples of the host's own, and a learning rate of the host's own.
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "combination.hpp"
#include "support.h"

namespace tenon::test {
namespace {

// A batch of made-up tokens below `vocabulary`.
struct Made {
  std::vector<int32_t> tokens, targets;
  tenon_batch it{};

  explicit Made(const OpenRun& run, uint32_t state = 1, uint32_t vocabulary = 256) {
    const tenon_info info = run.info();
    it = {sizeof it, 0, info.batch, info.context, nullptr, nullptr};
    for (auto* field : {&tokens, &targets}) {
      for (int64_t i = 0; i < info.batch * info.context; ++i) {
        state = state * 1664525u + 1013904223u;
        field->push_back(static_cast<int32_t>((state >> 16) % vocabulary));
      }
    }
    it.tokens = tokens.data();
    it.targets = targets.data();
  }
};

Outcome step_on(OpenRun& run, const tenon_batch& batch, tenon_step_result* result = nullptr) {
  return outcome_of([&](tenon_error* e) { return tenon_run_step_on(run.get(), &batch, result, e); });
}

double loss_on(OpenRun& run, const Made& batch) {
  tenon_step_result result{};
  result.struct_size = sizeof result;
  const Outcome done = step_on(run, batch.it, &result);
  EXPECT_EQ(done.code, TENON_OK) << done.text;
  return result.loss;
}

Outcome set_lr(OpenRun& run, const double* lr) {
  return outcome_of([&](tenon_error* e) { return tenon_run_set_lr(run.get(), lr, e); });
}

double lr_of_step(OpenRun& run) {
  tenon_step_result result{};
  result.struct_size = sizeof result;
  EXPECT_EQ(run.step(&result).code, TENON_OK);
  return result.lr;
}

// As many samples as the batch has, so that the recipe's first step takes each of them, in whatever order.
TEST(Batch, of_all_samples_of_the_data_gives_the_loss_of_the_recipes_step_on_them) {
  const Folder folder;
  const Context context;
  Json recipe = tiny();
  recipe["data"]["valid"] = 0.0;
  const int64_t samples = recipe["batch"], tokens = recipe["context"];
  std::string text;
  while (std::ssize(text) <= samples * tokens)
    text += static_cast<char>(' ' + text.size() * text.size() % 89);
  std::ofstream(folder / "corpus.txt") << text;
  OpenRun data(context, recipe, folder.path()), host(context, recipe, folder.path());
  Made made(host);
  const double elsewhere = loss_on(host, made), expected = data.losses(1)[0];
  OpenRun again(context, recipe, folder.path());
  for (size_t i = 0; i < made.tokens.size(); ++i) {
    made.tokens[i] = static_cast<uint8_t>(text[i]);
    made.targets[i] = static_cast<uint8_t>(text[i + 1]);
  }
  EXPECT_NEAR(loss_on(again, made), expected, 1e-5);
  EXPECT_GT(std::abs(elsewhere - expected), 1e-3) << "on other tokens it is another";
}

TEST(Batch, is_dealt_out_over_any_mesh_as_on_one_rank) {
  const std::vector<Combination> meshes{
      {"dp2", "gpt2", {{"dp", 2}}, "data zero3", "", 2},
      {"cp2", "llama", {{"cp", 2}}, "ring"},
      {"pp2_tp2", "llama", {{"pp", 2}, {"tp", 2}}, "pipeline sequence", "1f1b", 2}};
  for (const Combination& mesh : meshes) {
    SCOPED_TRACE(mesh.name);
    const Folder folder;
    const Context context;
    Json one = recipe_of(mesh, "corpus.txt", true), many = recipe_of(mesh, "corpus.txt", false);
    for (Json* recipe : {&one, &many}) (*recipe)["kernels"]["plugin"] = "kernels/cpu";
    OpenRun alone(context, one, folder.path()), together(context, many, folder.path());
    ASSERT_EQ(together.opened().code, TENON_OK) << together.opened().text;
    for (uint32_t step = 1; step <= 3; ++step) {
      const Made made(alone, step);
      EXPECT_NEAR(loss_on(alone, made), loss_on(together, made), 1e-9) << "step " << step;
    }
  }
}

TEST(Batch, counts_as_a_step_and_leaves_the_position_in_the_data) {
  const Folder folder;
  const Context context;
  OpenRun plain(context, tiny(), folder.path()), run(context, tiny(), folder.path());
  const std::vector<double> expected = plain.losses(1);
  const double nothing = 0;  // of this learning rate parameters stay
  ASSERT_EQ(set_lr(run, &nothing).code, TENON_OK);
  loss_on(run, Made(run));
  EXPECT_EQ(run.info().steps_done, 1);
  ASSERT_EQ(set_lr(run, nullptr).code, TENON_OK);
  expect_same_bits(run.losses(1), expected);
  loss_on(run, Made(run, 2));
  // A checkpoint holds both numbers.
  ASSERT_EQ(run.save(folder / "out").code, TENON_OK);
  OpenRun resumed(context, tiny(), folder.path());
  ASSERT_EQ(resumed.resume(folder / "out").code, TENON_OK);
  EXPECT_EQ(resumed.info().steps_done, 3);
  expect_same_bits(resumed.losses(2), run.losses(2));
  std::stringstream manifest;
  manifest << std::ifstream(folder / "out/step-3/manifest.json").rdbuf();
  EXPECT_EQ(Json::parse(manifest.str()).at("meta").at("samples_seen"), 8);
  loss_on(run, Made(run));
  const Outcome behind = step_on(run, Made(run).it);
  EXPECT_EQ(behind.code, TENON_DONE) << "6 steps are the recipe's";
  EXPECT_EQ(run.info().steps_done, 6);
}

TEST(Batch, a_target_below_zero_does_not_count) {
  const Folder folder;
  const Context context;
  OpenRun run(context, tiny(), folder.path());
  Made made(run);
  std::fill(made.targets.begin() + 5, made.targets.end(), -1);
  tenon_step_result result{};
  result.struct_size = sizeof result;
  ASSERT_EQ(step_on(run, made.it, &result).code, TENON_OK);
  EXPECT_EQ(result.tokens, 5);
}

TEST(Batch, that_is_wrong_is_refused_and_nothing_happens) {
  const Folder folder;
  const Context context;
  Json recipe = tiny();
  recipe["mesh"] = Json::array({Json::array({"dp", 2})});
  OpenRun run(context, recipe, folder.path());
  const auto before = run.read_all();
  const auto refused = [&](const std::string& part, const auto& change) {
    Made made(run);
    change(made);
    const Outcome said = step_on(run, made.it);
    EXPECT_EQ(said.code, TENON_E_ARGUMENT);
    EXPECT_TRUE(has(said.text, "error[A010]: " + part)) << said.text;
  };
  refused("tokens[17] of the batch is 256, and may be 0 to 255", [](Made& m) { m.tokens[17] = 256; });
  refused("tokens[3] of the batch is -1, and may be 0 to 255", [](Made& m) { m.tokens[3] = -1; });
  refused("targets[95] of the batch is 256, and may be -1 to 255", [](Made& m) { m.targets[95] = 256; });
  refused("targets[0] of the batch is -2, and may be -1 to 255", [](Made& m) { m.targets[0] = -2; });
  refused("tenon_batch.samples is 7, not 8", [](Made& m) { m.it.samples = 7; });
  refused("tenon_batch.context is 13, not 12", [](Made& m) { m.it.context = 13; });
  refused("tenon_run_step_on: 'targets' is NULL", [](Made& m) { m.it.targets = nullptr; });
  refused("tenon_batch.struct_size is 0", [](Made& m) { m.it.struct_size = 0; });
  EXPECT_EQ(run.info().steps_done, 0);
  EXPECT_TRUE(run.read_all() == before);
  tenon_run_options options = run_options();
  options.flags = TENON_RUN_NO_TRAINING;
  OpenRun untrained(context, tiny(), folder.path(), options);
  EXPECT_TRUE(has(step_on(untrained, Made(untrained).it).text, "error[E024]"));
}

TEST(LearningRate, of_the_host_holds_until_the_recipes_is_asked_for_again) {
  const Folder folder;
  const Context context;
  OpenRun plain(context, tiny(), folder.path()), run(context, tiny(), folder.path());
  std::vector<double> recipes;
  for (int i = 0; i < 6; ++i) recipes.push_back(lr_of_step(plain));
  const double mine = 0.025;
  EXPECT_EQ(lr_of_step(run), recipes[0]);
  ASSERT_EQ(set_lr(run, &mine).code, TENON_OK);
  EXPECT_EQ(lr_of_step(run), mine);
  ASSERT_EQ(run.save(folder / "out").code, TENON_OK);
  ASSERT_EQ(run.resume(folder / "out").code, TENON_OK);
  EXPECT_EQ(lr_of_step(run), mine) << "it is the host's";
  ASSERT_EQ(set_lr(run, nullptr).code, TENON_OK);
  EXPECT_EQ(lr_of_step(run), recipes[3]);
  OpenRun other(context, tiny(), folder.path());
  ASSERT_EQ(other.resume(folder / "out").code, TENON_OK);
  EXPECT_EQ(lr_of_step(other), recipes[2]) << "no checkpoint holds it";
}

TEST(LearningRate, that_is_none_is_refused_and_the_one_before_holds) {
  const Folder folder;
  const Context context;
  OpenRun run(context, tiny(), folder.path());
  const double mine = 0.5;
  ASSERT_EQ(set_lr(run, &mine).code, TENON_OK);
  for (const double bad : {-1e-9, std::nan(""), std::numeric_limits<double>::infinity()}) {
    const Outcome said = set_lr(run, &bad);
    EXPECT_EQ(said.code, TENON_E_ARGUMENT);
    EXPECT_TRUE(has(said.text, "error[A010]: tenon_run_set_lr: the learning rate is ")) << said.text;
  }
  EXPECT_EQ(lr_of_step(run), mine);
}

}  // namespace
}  // namespace tenon::test
