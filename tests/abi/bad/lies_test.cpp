// Every lie of lies.h, told to `tenon train`, or to the command that asks for it, and to a program that
// embeds Tenon: it is named, with code and plugin, before the first step; nobody crashes, nothing is left
// behind.
#include "lies.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "command.hpp"
#include "support.h"

namespace tenon::lies {
static void PrintTo(const Lie& lie, std::ostream* out) { *out << lie.kind << "/" << lie.name; }
}  // namespace tenon::lies

namespace tenon::test {
namespace {

using lies::kBatchLies;
using lies::kFrontendLies;
using lies::kLies;
using lies::Lie;

std::string id_of(const Lie& lie) { return std::string(lie.kind) + "/" + lie.name; }
bool honest(const Lie& lie) { return std::string(lie.code).empty(); }

// A folder with the liar under the name of its lie.
class Stage {
 public:
  explicit Stage(const Lie& lie) {
    const std::string file = "libtenon-" + std::string(lie.kind) + "-" + lie.name + ".so";
    fs::copy_file(TENON_LIAR, folder_ / file);
  }
  const Folder& folder() const { return folder_; }

  Json recipe(const Lie& lie) const {
    const TinyModel tiny;
    Json out = tiny_recipe(gpt2_model(tiny), folder_ / "corpus.txt", tiny.context);
    out["save"]["every"] = out["steps"];
    const std::string kind = lie.kind, id = id_of(lie);
    const Json use{{"plugin", id}, {"options", Json::object()}};
    if (kind == "sink") {
      out["log"]["sinks"].push_back(use);
    } else if (kind == "parallel") {
      out["strategies"] = Json::array({use});
    } else if (kind == "schedule") {
      out["mesh"] = Json::array({Json::array({"pp", 2})});
      out["microbatches"] = 2;
      out["strategies"] = Json::array({{{"plugin", "parallel/pipeline"}, {"options", Json::object()}}});
      out["schedule"] = use;
    } else {
      out[kind]["plugin"] = id;
    }
    return out;
  }

 private:
  Folder folder_;
};

int ranks_of(const Lie& lie) {
  const std::string kind = lie.kind;
  return kind == "comm" || kind == "schedule" ? 2 : 1;
}

void expect_named(const Lie& lie, const std::string& said) {
  EXPECT_TRUE(has(said, "error[" + std::string(lie.code))) << said;
  EXPECT_TRUE(has(said, lie.words)) << said;
  // A plugin under another name, or without one, is named by its file.
  EXPECT_TRUE(has(said, id_of(lie)) || has(said, std::string(lie.kind) + "-" + lie.name + ".so")) << said;
}

class Lies : public testing::TestWithParam<Lie> {};

CommandResult run(const Stage& stage, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), TENON_COMMAND);
  Command command(arguments, stage.folder().path(), {"TENON_PLUGIN_PATH=" + stage.folder().path()});
  return command.finish(kPatience);
}

bool shown_by_training(const Lie& lie) { return std::string(lie.verb) == "train" && !honest(lie); }

TEST_P(Lies, are_named_by_the_command_that_asks_before_it_does_anything) {
  const Lie& lie = GetParam();
  const Stage stage(lie);
  std::ofstream(stage.folder() / "recipe.json") << stage.recipe(lie).dump();
  CommandResult result =
      run(stage, {"train", "recipe.json", "-n", std::to_string(ranks_of(lie)), "--run-dir", "run"});
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.signal, 0) << result.err;
  if (!shown_by_training(lie)) {
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(has(result.out, "done")) << result.out;
    if (honest(lie)) return;
    result = run(stage, {lie.verb, "run", "--prompt", "a"});
    EXPECT_EQ(result.signal, 0) << result.err;
  }
  EXPECT_GT(result.code, 0) << result.out;
  expect_named(lie, result.err);
  EXPECT_FALSE(has(result.out, "done")) << result.out;
  EXPECT_FALSE(has(result.out, "step ")) << result.out;
  if (shown_by_training(lie)) {
    EXPECT_FALSE(fs::exists(stage.folder() / "run")) << "what cannot start leaves no run";
  }
}

// Whether a program that embeds Tenon calls what lies: its loop has no sinks, and its ranks in one process
// communicate through comm/local.
bool is_asked_when_embedded(const Lie& lie) {
  return shown_by_training(lie) && id_of(lie) != "sink/open-null" && std::string(lie.kind) != "comm";
}

TEST_P(Lies, are_named_to_an_embedding_program_when_it_opens_a_run) {
  const Lie& lie = GetParam();
  const Stage stage(lie);
  const char* const folders[] = {stage.folder().path().c_str(), TENON_PLUGIN_DIR};
  tenon_options options{};
  options.struct_size = sizeof options;
  options.plugin_directories = folders;
  options.num_plugin_directories = 2;
  const Context context(&options);
  OpenRun run(context, stage.recipe(lie), stage.folder().path());
  if (!is_asked_when_embedded(lie)) {
    ASSERT_EQ(run.opened().code, TENON_OK) << run.opened().text;
    EXPECT_EQ(run.step().code, TENON_OK);
    return;
  }
  EXPECT_LT(run.opened().code, 0);
  expect_named(lie, run.opened().text);
}

INSTANTIATE_TEST_SUITE_P(All, Lies, testing::ValuesIn(kLies), [](const auto& info) {
  std::string name = id_of(info.param);
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

// Beside sound kernels, for one kind. Its memory is never asked for then.
TEST(Lies, of_kernels_are_named_where_they_override_one_kind_too) {
  int told = 0;
  for (const Lie& lie : kLies) {
    const std::string name = lie.name;  // fusions with what is overridden are off
    if (lie.kind != std::string("kernels") || name.starts_with("alloc") || name.starts_with("fusion"))
      continue;
    SCOPED_TRACE(lie.name);
    const Stage stage(lie);
    Json recipe = stage.recipe(lie);
    const Json use = recipe["kernels"];
    recipe["kernels"] = {{"plugin", "kernels/reference"}, {"overrides", {{"gelu", use}}}};
    std::ofstream(stage.folder() / "recipe.json") << recipe.dump();
    const CommandResult result = run(stage, {"train", "recipe.json", "-n", "1", "--run-dir", "run"});
    EXPECT_FALSE(result.timed_out);
    EXPECT_GT(result.code, 0) << result.out;
    expect_named(lie, result.err);
    ++told;
  }
  EXPECT_EQ(told, 9);
}

TEST(BatchLies, are_named_before_the_batch_is_used) {
  for (const Lie& lie : kBatchLies) {
    SCOPED_TRACE(id_of(lie));
    const Stage stage(lie);
    std::ofstream(stage.folder() / "recipe.json") << stage.recipe(lie).dump();
    const CommandResult result = run(stage, {"train", "recipe.json", "-n", "1", "--run-dir", "run"});
    EXPECT_FALSE(result.timed_out);
    EXPECT_GT(result.code, 0) << result.out;
    expect_named(lie, result.err);
    EXPECT_FALSE(has(result.out, "step ")) << result.out;
  }
}

class FrontendLies : public testing::TestWithParam<Lie> {};

TEST_P(FrontendLies, are_named_by_the_process_that_asked_for_the_recipe) {
  const Lie& lie = GetParam();
  const Folder folder;
  fs::copy_file(TENON_LIAR, folder / "libtenon-frontend-lua.so");
  std::ofstream(folder / "lie") << id_of(lie);
  std::ofstream(folder / "recipe.lua")
      << "local t = require 'tenon'\n"
         "return t.run { steps = 1, batch = 1, context = 8, model = t.models.gpt2 { layers = 1, heads = 1,\n"
         "width = 8, vocab = 256, context = 8 }, data = t.data.text { file = 'corpus.txt' },\n"
         "optim = t.optim.adamw { lr = 1 }, kernels = 'kernels/reference' }\n";
  Command command({TENON_COMMAND, "train", "recipe.lua", "--run-dir", "run"}, folder.path(),
                  {"TENON_PLUGIN_PATH=" + folder.path()});
  const CommandResult result = command.finish(kPatience);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.signal, 0);
  if (honest(lie)) {
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(has(result.out, "done")) << result.out;
    return;
  }
  EXPECT_GT(result.code, 0) << result.out;
  EXPECT_TRUE(has(result.err, "error[" + std::string(lie.code))) << result.err;
  EXPECT_TRUE(has(result.err, lie.words)) << result.err;
  const bool of_recipe = std::string(lie.code) == "R0";
  if (!of_recipe) {
    EXPECT_TRUE(has(result.err, "libtenon-frontend-lua.so")) << result.err;
  }
  EXPECT_FALSE(fs::exists(folder / "run")) << "what cannot start leaves no run";
}

INSTANTIATE_TEST_SUITE_P(All, FrontendLies, testing::ValuesIn(kFrontendLies), [](const auto& info) {
  std::string name = info.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

TEST(Lies, are_more_than_forty) { EXPECT_GE(std::size(kLies), 41u); }

}  // namespace
}  // namespace tenon::test
