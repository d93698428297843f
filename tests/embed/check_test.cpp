// A recipe is checked without running it.
#include <nlohmann/json.hpp>
#include <thread>

#include "combination.hpp"
#include "support.h"

namespace tenon::test {
namespace {

Outcome check(const Context& context, const Json& recipe, const std::string& root, tenon_run_options options,
              tenon_check_result* result) {
  options.data_root = root.c_str();
  const std::string text = recipe.dump();
  return outcome_of([&](tenon_error* e) {
    return tenon_check_json(context.get(), text.data(), text.size(), &options, result, e);
  });
}

int num_threads() {
  return static_cast<int>(std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator()));
}

TEST(Check, tells_what_opening_would) {
  const Folder folder;
  const Context context;
  const Combination mesh{"",     "gpt2", {{"pp", 2}, {"dp", 2}, {"tp", 2}}, "pipeline data sequence zero3",
                         "1f1b", 4};
  const Json recipe = recipe_of(mesh, "corpus.txt", false);
  tenon_check_result result{};
  result.struct_size = sizeof result;
  std::thread([] {}).join();  // a sanitizer has its own beside the first
  const int threads = num_threads();
  const Outcome checked = check(context, recipe, folder.path(), run_options(), &result);
  ASSERT_EQ(checked.code, TENON_OK) << checked.text;
  EXPECT_EQ(num_threads(), threads);
  OpenRun run(context, recipe, folder.path());
  ASSERT_EQ(run.opened().code, TENON_OK) << run.opened().text;
  EXPECT_EQ(result.ranks, 8);
  EXPECT_EQ(result.programs, 6) << "of two stages three each";
  EXPECT_EQ(result.num_parameters, run.info().num_parameters);
  EXPECT_EQ(result.samples, 4000 / 16);
  EXPECT_GE(result.planned_bytes, run.info().planned_bytes) << "rank 0's";
  const Json alone = recipe_of(mesh, "corpus.txt", true);
  OpenRun one(context, alone, folder.path());
  ASSERT_EQ(check(context, alone, folder.path(), run_options(), &result).code, TENON_OK);
  EXPECT_EQ(result.ranks, 1);
  EXPECT_EQ(result.programs, 3);
  EXPECT_EQ(result.planned_bytes, one.info().planned_bytes);
}

TEST(Check, of_more_processes_than_there_are_needs_no_secret_and_meets_nobody) {
  const Folder folder;
  const Context context;
  Json recipe = tiny("fast", "comm/ucx");
  recipe["batch"] = 256;
  tenon_run_options options = run_options();
  options.world = 256;
  tenon_check_result result{};
  result.struct_size = sizeof result;
  const Outcome checked = check(context, recipe, folder.path(), options, &result);
  ASSERT_EQ(checked.code, TENON_OK) << checked.text;
  EXPECT_EQ(result.ranks, 256);
  options.flags = TENON_RUN_NO_TRAINING;
  ASSERT_EQ(check(context, recipe, folder.path(), options, &result).code, TENON_OK);
  EXPECT_EQ(result.programs, 2) << "evaluation and logits";
  EXPECT_EQ(check(context, recipe, folder.path(), options, nullptr).code, TENON_OK);
}

TEST(Check, refuses_what_opening_refuses) {
  const Folder folder;
  const Context context;
  tenon_check_result result{};
  result.struct_size = sizeof result;
  result.ranks = -7;
  const auto refused = [&](const std::string& code, const Json& recipe, tenon_run_options options) {
    const Outcome checked = check(context, recipe, folder.path(), options, &result);
    EXPECT_LT(checked.code, 0);
    EXPECT_TRUE(has(checked.text, "error[" + code + "]")) << checked.text;
    OpenRun run(context, recipe, folder.path(), options);
    EXPECT_TRUE(has(run.opened().text, "error[" + code + "]")) << run.opened().text;
    EXPECT_EQ(result.ranks, -7);
  };
  tenon_run_options options = run_options();
  options.virtual_ranks = 3;
  refused("P010", tiny(), options);
  options.virtual_ranks = -3;
  refused("A010", tiny(), options);
  Json recipe = tiny();
  recipe["optimizer"]["plugin"] = "optimizer/none";
  refused("A002", recipe, run_options());
  recipe = tiny();
  recipe["data"]["options"]["files"] = Json::array({"nothing.txt"});
  refused("E011", recipe, run_options());
  recipe = tiny();
  recipe["steps"] = "many";
  refused("R003", recipe, run_options());
  TinyModel small;
  small.vocab = 100;
  recipe = tiny();
  recipe["model"] = gpt2_model(small);
  refused("D003", recipe, run_options());
}

TEST(Check, evaluates_a_recipe_in_Lua) {
  const Folder folder;
  const Context context;
  const std::string path = std::string(TENON_RECIPES) + "/mlp.lua", file = "file=" + (folder / "corpus.txt");
  const char* const overrides[] = {file.c_str()};
  tenon_check_result result{};
  result.struct_size = sizeof result;
  const Outcome checked = outcome_of([&](tenon_error* e) {
    return tenon_check(context.get(), path.c_str(), overrides, 1, nullptr, &result, e);
  });
  ASSERT_EQ(checked.code, TENON_OK) << checked.text;
  EXPECT_EQ(result.ranks, 1);
  EXPECT_GT(result.num_parameters, 0);
}

}  // namespace
}  // namespace tenon::test
