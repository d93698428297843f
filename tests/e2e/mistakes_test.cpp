// What the command says to mistakes, word for word, and its exit code. Nothing that failed before its first
// step leaves a run behind.
#include "tenon/base.h"
#include "workplace.hpp"

namespace tenon::test {
namespace {

// Runs and compares standard error; "..." in `message` stands for any text within a line.
void expect_error(const Workplace& place, const std::vector<std::string>& arguments, int code,
                  const std::string& message, const std::vector<std::string>& environment = {}) {
  const CommandResult result = place.run(arguments, environment);
  EXPECT_EQ(result.code, code) << result.out << result.err;
  std::string rest = result.err;
  for (size_t at; (at = rest.find(place.path() + "/")) != std::string::npos;)
    rest.replace(at, place.path().size() + 1, "@");
  size_t from = 0;
  std::istringstream wanted(message), said(rest);
  for (std::string want, got; std::getline(wanted, want); ++from) {
    ASSERT_TRUE(std::getline(said, got)) << "missing: " << want << "\nin\n" << rest;
    const size_t gap = want.find("...");
    const bool same = gap == std::string::npos
                          ? got == want
                          : got.starts_with(want.substr(0, gap)) && got.ends_with(want.substr(gap + 3));
    ASSERT_TRUE(same) << "wanted: " << want << "\ngot:    " << got << "\nin\n" << rest;
  }
  std::string more;
  EXPECT_FALSE(std::getline(said, more)) << "and: " << more;
}

// train -n 1, train on two processes, and check say the same; the processes put their rank before it.
void expect_everywhere(const Workplace& place, const std::string& recipe, int code,
                       const std::string& message) {
  expect_error(place, {"check", recipe}, code, message);
  expect_error(place, {"train", recipe, "--run-dir", "run"}, code, message);
  EXPECT_FALSE(std::filesystem::exists(place.at("run"))) << "a run that cannot start leaves no folder";
}

std::string with_rank(std::string message) { return message.insert(message.find("]: ") + 3, "rank 0: "); }

// -- the recipe ---------------------------------------------------------------------------------------

TEST(Recipe, unknown_key) {
  const Workplace place;
  place.write_changed("r.lua", "seed = 11", "sed = 11");
  expect_everywhere(place, "r.lua", 2,
                    "error[R002]: unknown option 'sed' for t.run\n"
                    "  --> r.lua:25:51\n"
                    "   |\n"
                    "25 |   steps = p.steps, batch = p.batch, context = 16, sed = 11,\n"
                    "   |                                                   ^^^\n"
                    "  fix: did you mean 'seed'?\n");
}

TEST(Recipe, wrong_type) {
  const Workplace place;
  place.write_changed("r.lua", "batch = p.batch", "batch = \"eight\"");
  expect_everywhere(place, "r.lua", 2,
                    "error[R003]: 'batch' of t.run wants a whole number >= 1, got the string \"eight\"\n"
                    "  --> r.lua:25:20\n"
                    "   |\n"
                    "25 |   steps = p.steps, batch = \"eight\", context = 16, seed = 11,\n"
                    "   |                    ^^^^^\n");
}

TEST(Recipe, missing_file) {
  const Workplace place;
  expect_everywhere(place, "none.lua", 2,
                    "error[R015]: cannot read 'none.lua': No such file or directory\n  --> none.lua\n");
}

TEST(Recipe, endless_loop) {
  const Workplace place;
  place.write("r.lua", "while true do end\n");
  expect_everywhere(place, "r.lua", 2,
                    "error[R014]: the recipe takes too long: more than 50 million instructions\n"
                    "  --> r.lua:1:1\n"
                    "  |\n"
                    "1 | while true do end\n"
                    "  | ^^^^^\n"
                    "  fix: is there a loop without end?\n");
}

TEST(Recipe, memory_bomb) {
  const Workplace place;
  place.write("r.lua", "local x = \"a\"\nfor i = 1, 60 do x = x .. x end\n");
  expect_everywhere(place, "r.lua", 2,
                    "error[R014]: the recipe needs more than 64 MiB of memory\n"
                    "  --> r.lua:2:1\n"
                    "  |\n"
                    "2 | for i = 1, 60 do x = x .. x end\n"
                    "  | ^^^\n"
                    "  fix: is there a loop that collects values without end?\n");
}

TEST(Recipe, unknown_parameter_on_the_command_line) {
  const Workplace place;
  expect_error(place, {"train", "tiny.lua", "stepz=3"}, 2,
               "error[R013]: unknown parameter 'stepz' on the command line\n"
               "  --> tiny.lua:2:11\n"
               "  |\n"
               "2 | local p = t.params {\n"
               "  |           ^\n"
               "  fix: did you mean 'steps'?\n");
}

TEST(Recipe, unknown_option_of_the_optimizer) {
  const Workplace place;
  place.write_changed("r.lua", "weight_decay = 0.1, groups", "weight_decai = 0.1, groups");
  expect_everywhere(place, "r.lua", 2,
                    "error[R002]: unknown option 'weight_decai' for adamw\n"
                    "  --> r.lua:22:49\n"
                    "   |\n"
                    "22 |   and t.optim.adamw {...\n"
                    "   |                                                 ^^^^^^^^^^^^\n"
                    "  fix: did you mean 'weight_decay'?\n");
}

TEST(Recipe, option_of_the_optimizer_that_only_the_plugin_knows_is_wrong) {
  const Workplace place;
  place.write_changed("r.lua", "t.optim.sgd { lr = p.lr,",
                      "t.optim.plugin(\"optimizer/sgd\", { lr = p.lr, nestrov = true,");
  place.write("r.lua", place.read("r.lua").replace(place.read("r.lua").find("momentum = 0.9 }"), 16,
                                                   "momentum = 0.9 })"));
  expect_error(place, {"check", "r.lua", "optim=sgd"}, 2,
               "error[R002]: unknown option 'nestrov' for optimizer/sgd\n"
               "  --> r.lua:23:51\n"
               "   |\n"
               "23 |   or t.optim.plugin(...\n"
               "   |                                                   ^^^^^^^\n"
               "  fix: did you mean 'nesterov'?\n");
}

TEST(Recipe, option_of_the_optimizer_out_of_range) {
  const Workplace place;
  place.write_changed("r.lua", "weight_decay = 0.1, groups", "beta1 = 1.5, groups");
  expect_everywhere(place, "r.lua", 2,
                    "error[R005]: option 'beta1' of optimizer/adamw wants a number from 0 to 1, got 1.5\n"
                    "  --> r.lua:22:49\n"
                    "   |\n"
                    "22 |   and t.optim.adamw {...\n"
                    "   |                                                 ^^^^^\n");
}

TEST(Recipe, mistakes_are_json_where_json_is_asked_for) {
  const Workplace place;
  place.write_changed("r.lua", "seed = 11", "sed = 11");
  const auto result = place.run({"train", "r.lua", "--json"});
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err, "");
  const json error = parse_lines(result.out).at(0).at("error");
  EXPECT_EQ(error.at("code"), "R002");
  EXPECT_EQ(error.at("cause"), "unknown option 'sed' for t.run");
  EXPECT_EQ(error.at("fix"), "did you mean 'seed'?");
  EXPECT_EQ(error.at("place").get<std::string>().substr(0, 11), "r.lua:25:51");
}

// -- plan and data ------------------------------------------------------------------------------------

TEST(Plan, batch_that_is_not_divisible) {
  const Workplace place;
  const std::string message =
      "error[P010]: batch 7 is not divisible by 4 (1 microbatches x 4 data-parallel ranks)\n"
      "  --> tiny.lua:25:20\n"
      "   |\n"
      "25 |   steps = p.steps, batch = p.batch, context = 16, seed = 11,\n"
      "   |                    ^^^^^\n"
      "  fix: nearest: 4 or 8\n";
  for (const char* verb : {"check", "plan", "train"})
    expect_error(place, {verb, "tiny.lua", "batch=7", "-n", "4"}, 2, message);
  expect_error(place, {"train", "tiny.lua", "batch=7", "-n", "4", "comm=comm/ucx"}, 2, message);
  EXPECT_FALSE(std::filesystem::exists(place.at("runs")));
}

TEST(Plan, mesh_that_does_not_multiply_to_the_ranks) {
  const Workplace place;
  const std::string message =
      "error[P001]: mesh dp 3 does not multiply to the 4 ranks started\n"
      "  --> tiny.lua:30:3\n"
      "   |\n"
      "30 |   mesh = t.mesh { dp = p.dp },\n"
      "   |   ^^^^\n"
      "  fix: start 3 ranks, or change the mesh\n";
  for (const char* verb : {"check", "plan", "train"})
    expect_error(place, {verb, "tiny.lua", "dp=3", "-n", "4"}, 2, message);
  EXPECT_FALSE(std::filesystem::exists(place.at("runs")));
}

TEST(Data, missing_file) {
  const Workplace place;
  const std::string message =
      "error[E011]: data/text: '@none.txt' cannot be opened: No such file or directory (errno 2)\n"
      "  --> tiny.lua:28:10\n"
      "   |\n"
      "28 |   data = t.data.text { file = p.file, valid = p.valid },\n"
      "   |          ^\n";
  expect_error(place, {"check", "tiny.lua", "file=none.txt"}, 3, message);
  expect_error(place, {"train", "tiny.lua", "file=none.txt", "--run-dir", "run"}, 3, message);
  expect_error(place, {"train", "tiny.lua", "file=none.txt", "-n", "2", "--run-dir", "run"}, 3, message);
  EXPECT_FALSE(std::filesystem::exists(place.at("run")));
  expect_error(place, {"train", "tiny.lua", "file=none.txt", "-n", "2", "comm=comm/ucx", "--run-dir", "run"},
               3, with_rank(message));
  EXPECT_FALSE(std::filesystem::exists(place.at("run")));
}

TEST(Data, tokens_beyond_the_vocabulary) {
  const Workplace place;
  place.write("text.txt", words(3000) + "\xc3\xa9");
  const std::string message =
      "error[D003]: the data has tokens up to 255, but 'wte.weight' has 128 rows\n"
      "  --> tiny.lua:26:3\n"
      "   |\n"
      "26 |   model = t.models.gpt2 {...\n"
      "   |   ^^^^^\n"
      "  fix: set the model's vocabulary to 256\n";
  expect_error(place, {"check", "tiny.lua", "vocab=128"}, 2, message);
  expect_error(place, {"train", "tiny.lua", "vocab=128", "--run-dir", "run"}, 2, message);
  EXPECT_FALSE(std::filesystem::exists(place.at("run")));
}

TEST(Data, nothing_left_to_train_on) {
  const Workplace place;
  place.write("text.txt", "short");
  const std::string message =
      "error[D001]: 1 samples with a share of 0.1 for validation leave none to train on\n"
      "  --> tiny.lua:28:3\n"
      "   |\n"
      "28 |   data = t.data.text { file = p.file, valid = p.valid },\n"
      "   |   ^^^^\n"
      "  fix: use more text, a shorter context or a smaller share\n";
  expect_everywhere(place, "tiny.lua", 2, message);
}

TEST(Data, nothing_held_out_for_an_evaluation) {
  const Workplace place;
  const std::string message = "error[D004]: nothing is held out to evaluate on\n";
  const std::vector<std::string> verbs[] = {{"check"}, {"train", "--run-dir", "run"}};
  for (std::vector<std::string> command : verbs) {
    command.insert(command.end(), {"tiny.lua", "valid=0", "eval=2"});
    const CommandResult result = place.run(command);
    EXPECT_EQ(result.code, 2) << result.out;
    EXPECT_TRUE(result.err.starts_with(message)) << result.err;
  }
  EXPECT_FALSE(std::filesystem::exists(place.at("run")));
}

// -- plugins ------------------------------------------------------------------------------------------

// The message of an id that is searched for: the first line, one per folder, then where it stands.
void expect_searched(const Workplace& place, const CommandResult& result, const std::string& first,
                     const std::string& tried, const std::string& fix) {
  EXPECT_EQ(result.code, 3) << result.out << result.err;
  EXPECT_TRUE(result.err.starts_with(first)) << result.err;
  EXPECT_NE(result.err.find(tried), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("  --> tiny.lua:31:3\n"), std::string::npos) << result.err;
  EXPECT_TRUE(result.err.ends_with(fix)) << result.err;
  EXPECT_FALSE(std::filesystem::exists(place.at("runs")));
}

TEST(Plugins, that_is_not_found) {
  const Workplace place;
  expect_searched(place, place.run({"train", "tiny.lua", "kernels=kernels/cpuu"}),
                  "error[A002]: plugin 'kernels/cpuu' not found; tried:\n",
                  "/libtenon-kernels-cpuu.so: no such file\n", "  fix: did you mean 'kernels/cpu'?\n");
  expect_searched(place, place.run({"check", "tiny.lua", "kernels=kernels/imaginary"}),
                  "error[A002]: plugin 'kernels/imaginary' not found; tried:\n",
                  "/libtenon-kernels-imaginary.so: no such file\n",
                  "  fix: build or install it, or name its folder in TENON_PLUGIN_PATH\n");
}

TEST(Plugins, that_is_not_a_library) {
  const Workplace place;
  place.write("libtenon-kernels-text.so", std::string(100, 'x'));
  expect_searched(
      place, place.run({"train", "tiny.lua", "kernels=kernels/text"}, {"TENON_PLUGIN_PATH=" + place.path()}),
      "error[A003]: plugin 'kernels/text' cannot be loaded; tried:\n",
      "libtenon-kernels-text.so: invalid ELF header\n",
      "  fix: the file is not a shared library for this machine\n");
}

TEST(Plugins, that_is_not_a_library_by_its_path) {
  const Workplace place;
  place.write("broken.so", std::string(100, 'x'));
  ASSERT_EQ(place.run({"train", "tiny.lua", "steps=1", "--run-dir", "run"}).code, 0);
  json recipe = json::parse(place.read("run/run.json")).at("recipe");
  recipe["kernels"]["plugin"] = "./broken.so";
  place.write("resolved.json", recipe.dump());
  expect_error(place, {"train", "resolved.json"}, 3,
               "error[A003]: plugin './broken.so' cannot be loaded: ...broken.so: invalid ELF header\n"
               "  --> /kernels/plugin\n"
               "  fix: the file is not a shared library for this machine\n");
}

// -- runs and checkpoints -----------------------------------------------------------------------------

TEST(Runs, folder_without_a_run) {
  const Workplace place;
  std::filesystem::create_directory(place.at("empty"));
  for (const char* verb : {"resume", "eval", "sample"}) {
    for (const std::string folder : {"empty", "none"}) {
      expect_error(place, {verb, folder}, 2,
                   "error[R021]: cannot read " + folder +
                       "/run.json\n  fix: name the folder of a run: runs/<name>/<number>\n");
    }
  }
}

TEST(Runs, no_checkpoint_to_go_on_from) {
  const Workplace place;
  ASSERT_EQ(place.run({"train", "tiny.lua", "steps=1", "--run-dir", "run"}).code, 0);
  for (const char* verb : {"eval", "sample"}) {
    expect_error(place, {verb, "run"}, 5,
                 "error[C001]: no checkpoint can be loaded\n"
                 "  --> run/checkpoints\n"
                 "  fix: check the folder, or start without resuming\n");
  }
}

TEST(Runs, folder_that_holds_one_already) {
  const Workplace place;
  ASSERT_EQ(place.run({"train", "tiny.lua", "steps=1", "--run-dir", "run"}).code, 0);
  expect_error(place, {"train", "tiny.lua", "--run-dir", "run"}, 2,
               "error[R020]: run holds a run already\n  fix: tenon resume run, or another --run-dir\n");
}

// The command that is told lists the names.
TEST(Runs, a_tensor_that_the_checkpoint_lacks) {
  const Workplace place;
  ASSERT_EQ(place.run({"train", "tiny.lua", "steps=1", "save=1", "--run-dir", "run"}).code, 0);
  expect_error(place, {"checkpoint", "run", "--tensor", "nope"}, 5,
               "error[C012]: no tensor 'nope'\n  --> run/checkpoints/step-1\n"
               "  fix: tenon checkpoint run/checkpoints/step-1 lists the names\n");
  const auto listed = place.run({"checkpoint", "run/checkpoints/step-1"});
  EXPECT_NE(listed.out.find("wte.weight"), std::string::npos) << listed.out;
}

TEST(Runs, damaged_file) {
  const Workplace place;
  ASSERT_EQ(place.run({"train", "tiny.lua", "steps=1", "--run-dir", "run"}).code, 0);
  place.write("run/run.json", "{\"tenon\": 1");
  expect_error(place, {"resume", "run"}, 2,
               "error[R010]: not valid JSON: line 1, column ...\n  --> run/run.json\n");
  place.write("run/run.json", "{\"tenon\": 1}");
  expect_error(place, {"resume", "run"}, 2, "error[R021]: run/run.json is damaged: key 'run_id' not found\n");
}

// A run of three steps whose run.json gets another recipe.
class Changed : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(place_.run({"train", "tiny.lua", "steps=3", "save=3", "--run-dir", "run"}).code, 0);
  }
  void change(const std::vector<std::string>& parameters) {
    std::vector<std::string> arguments{"train", "tiny.lua", "steps=3", "save=3", "--run-dir", "other"};
    arguments.insert(arguments.end(), parameters.begin(), parameters.end());
    ASSERT_EQ(place_.run(arguments).code, 0);
    json run = json::parse(place_.read("run/run.json"));
    run["recipe"] = json::parse(place_.read("other/run.json")).at("recipe");
    place_.write("run/run.json", run.dump());
  }
  Workplace place_;
};

TEST_F(Changed, model_is_refused_by_resume_eval_and_sample) {
  change({"width=32"});
  expect_error(place_, {"resume", "run", "--accept-recipe"}, 5,
               "error[C005]: the checkpoint is of another model: 108 of its tensors differ\n"
               "    'h.0.attn.c_proj.bias' is F32 [16], the model has F32 [32]\n"
               "    'h.0.attn.c_proj.bias/optimizer/adamw.exp_avg' is F32 [16], the model has F32 [32]\n"
               "    'h.0.attn.c_proj.bias/optimizer/adamw.exp_avg_sq' is F32 [16], the model has F32 [32]\n"
               "    ...\n    ...\n    ...\n"
               "  --> step 3 of run '...'\n"
               "  fix: resume with the recipe that the checkpoint was saved with\n");
  for (const char* verb : {"eval", "sample"}) {
    const auto result = place_.run({verb, "run"});
    EXPECT_EQ(result.code, 5) << result.out << result.err;
    EXPECT_TRUE(
        result.err.starts_with("error[C005]: the checkpoint is of another model: 36 of its tensors differ\n"))
        << result.err;
  }
}

TEST_F(Changed, smaller_model_is_refused_too_and_not_cut_out_of_the_larger_one) {
  change({"width=8"});
  for (const std::vector<std::string>& verb :
       {std::vector<std::string>{"resume", "run", "--accept-recipe"}, {"eval", "run"}, {"sample", "run"}}) {
    const auto result = place_.run(verb);
    EXPECT_EQ(result.code, 5) << verb[0] << result.out << result.err;
    EXPECT_TRUE(result.err.starts_with("error[C005]: the checkpoint is of another model: ")) << result.err;
  }
}

TEST_F(Changed, optimizer_is_refused_by_resume_and_does_not_matter_to_eval) {
  change({"optim=sgd"});
  const auto result = place_.run({"resume", "run", "--accept-recipe"});
  EXPECT_EQ(result.code, 5);
  EXPECT_NE(result.err.find("error[C005]"), std::string::npos) << result.err;
  EXPECT_EQ(place_.run({"eval", "run"}).code, 0);
}

TEST_F(Changed, batch_is_refused) {
  change({"batch=16"});
  expect_error(
      place_, {"resume", "run", "--accept-recipe"}, 5,
      "error[C020]: batch: checkpoint 8, recipe 16\n"
      "  --> run/checkpoints/step-3\n"
      "  fix: it decides which sample comes when and must not change; number of ranks and mesh may\n");
}

// One digit of it, which nothing but the comparison could tell.
TEST_F(Changed, learning_rate_is_refused_unless_it_is_accepted) {
  change({"lr=0.004"});
  expect_error(place_, {"resume", "run"}, 5,
               "error[C022]: the recipe is not the one of step 3: /lr/value is 0.004, and was 0.003\n"
               "  --> run/run.json\n"
               "  fix: restore the file, or go on with it by --accept-recipe\n");
  EXPECT_EQ(place_.run({"resume", "run", "--accept-recipe"}).code, 0);
}

TEST_F(Changed, data_are_refused) {
  place_.write("text.txt", words(3502));
  expect_error(place_, {"resume", "run"}, 5,
               "error[C021]: the data is not what the checkpoint was trained on\n"
               "  --> run/checkpoints/step-3\n"
               "  fix: restore the files\n");
}

TEST_F(Changed, bit_of_a_tensor_is_found) {
  std::string shard = place_.read("run/checkpoints/step-3/shard-00000.safetensors");
  shard.back() = static_cast<char>(shard.back() ^ 1);
  place_.write("run/checkpoints/step-3/shard-00000.safetensors", shard);
  expect_error(
      place_, {"resume", "run"}, 5,
      "error[C001]: no checkpoint can be loaded\n"
      "    step-3: the checksum of shard 0, chunk ...: tensor 'wte.weight/optimizer/adamw.exp_avg_sq')\n"
      "  --> run/checkpoints\n");
}

// -- the command line ---------------------------------------------------------------------------------

TEST(CommandLine, mistakes) {
  const Workplace place;
  const std::string error = "error[R023]: ";
  expect_error(place, {"trian", "tiny.lua"}, 2,
               error + "unknown command 'trian'\n  fix: did you mean 'train'?\n");
  expect_error(
      place, {"xyz"}, 2,
      error +
          "unknown command 'xyz'\n  fix: one of train, resume, eval, check, plan, sample, checkpoint, "
          "bench, plugins; see tenon --help\n");
  expect_error(place, {"train"}, 2, error + "recipe is required\n  fix: tenon train --help\n");
  expect_error(place, {"train", "tiny.lua", "--jsn"}, 2,
               error + "unknown option '--jsn' for tenon train\n  fix: did you mean '--json'?\n");
  expect_error(place, {"train", "tiny.lua", "--frobnicate"}, 2,
               error + "unknown option '--frobnicate' for tenon train\n  fix: tenon train --help\n");
  expect_error(place, {"train", "tiny.lua", "-n", "0"}, 2,
               error + "--ranks: Value 0 not in range 1 to 1048576\n  fix: tenon train --help\n");
  expect_error(place, {"train", "tiny.lua", "--threads", "1048576"}, 2,
               error + "--threads: Value 1048576 not in range 1 to 4096\n  fix: tenon train --help\n");
  expect_error(place, {"sample", "run", "--temperature", "-1"}, 2,
               error + "--temperature: wants a number from 0 up, got '-1'\n  fix: tenon sample --help\n");
  const std::tuple<const char*, const char*, const char*> numbers[] = {
      {"--flops", "nan", "a number from 1 to 1e30"},
      {"--flops", "inf", "a number from 1 to 1e30"},
      {"--flops", "1e999", "a number from 1 to 1e30"},
      {"--memory-bandwidth", "0", "a number from 1 to 1e30"},
      {"--link-bandwidth", "x", "a number from 1 to 1e30"},
      {"--link-latency", "nan", "a number from 0 to 1e9"},
      {"--rank", "-1", "a number from 0 up"},
      {"--memory", "-1", "bytes, as 4096 or 16GiB"},
      {"--memory", "-1GiB", "bytes, as 4096 or 16GiB"},
      {"--memory", "0", "bytes, as 4096 or 16GiB"},
      {"--memory", "0GiB", "bytes, as 4096 or 16GiB"},
      {"--link-latency", "1e308", "a number from 0 to 1e9"}};
  for (const auto& [option, value, wanted] : numbers) {
    expect_error(place, {"plan", "tiny.lua", option, value}, 2,
                 error + option + ": wants " + wanted + ", got '" + value + "'\n  fix: tenon plan --help\n");
  }
  for (const char* verb : {"resume", "eval"}) {
    expect_error(place, {verb, "run", "steps=600"}, 2,
                 error + "tenon " + verb +
                     " takes no parameters, got 'steps=600'\n  fix: a run keeps the recipe it was started "
                     "with; with another one: tenon train <recipe> steps=600\n");
  }
  expect_error(place, {"sample", "run", "--promt", "a=b"}, 2,
               error + "unknown option '--promt' for tenon sample\n  fix: did you mean '--prompt'?\n");
  const auto in_json = place.run({"train", "tiny.lua", "--jsn", "--json"});
  EXPECT_EQ(in_json.code, 2);
  EXPECT_EQ(parse_lines(in_json.out).at(0).at("error").at("fix"), "did you mean '--json'?");
}

// For programs: no lines of the source, which are for eyes.
TEST(CommandLine, in_json_a_place_is_file_line_and_column) {
  const Workplace place;
  place.write_changed("r.lua", "seed = 11", "sed = 11");
  const auto result = place.run({"check", "r.lua", "--json"});
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(parse_lines(result.out).at(0).at("error").at("place"), "r.lua:25:51");
}

TEST(CommandLine, of_nothing_gets_the_verbs) {
  const Workplace place;
  const auto nothing = place.run({});
  EXPECT_EQ(nothing.code, 2);
  EXPECT_EQ(nothing.out, "") << "that is for results";
  EXPECT_EQ(nothing.err, place.run({"--help"}).out);
  for (const char* verb :
       {"train", "resume", "eval", "check", "plan", "sample", "checkpoint", "bench", "plugins"})
    EXPECT_NE(nothing.err.find("\n  " + std::string(verb) + " "), std::string::npos) << nothing.err;
  EXPECT_EQ(nothing.err.find("worker"), std::string::npos) << nothing.err;
}

TEST(CommandLine, tells_its_version) {
  const Workplace place;
  const auto version = place.run({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out, "tenon 0.1.0, ABI " + std::to_string(TENON_ABI_MAJOR) + "." +
                             std::to_string(TENON_ABI_MINOR) + "\n");
}

TEST(CommandLine, questions_about_a_plan_that_have_no_answer) {
  const Workplace place;
  const auto ask = [&](std::vector<std::string> options, const std::string& message) {
    options.insert(options.begin(), {"plan", "tiny.lua"});
    expect_error(place, options, 2, "error[R026]: " + message);
  };
  for (const std::string number : {"99999", "-1", "99999999999999999999"}) {
    ask({"--why", "0," + number},
        "instruction " + number + " of a program of ...\n  --> --why\n  fix: 0 to ..., as 12 or 3,12\n");
  }
  for (const auto& [list, word] : std::vector<std::pair<std::string, std::string>>{{"1,,2", ""},
                                                                                   {"1,", ""},
                                                                                   {",1", ""},
                                                                                   {"0x3", "0x3"},
                                                                                   {"1, 2", " 2"},
                                                                                   {"1 2", "1 2"},
                                                                                   {"1-2", "1-2"}}) {
    ask({"--why", list}, "'" + list + "' is no list of instructions: '" + word +
                             "' is not a number\n  --> --why\n  fix: 0 to ..., as 12 or 3,12\n");
  }
  for (const std::vector<std::string>& option :
       std::vector<std::vector<std::string>>{{"--why", "0"}, {"--rank", "0"}, {"--all"}}) {
    std::vector<std::string> options = option;
    options.insert(options.end(), {"--stage", "placed"});
    ask(options, option[0] + " is of the program, not of stage 'placed'\n  --> " + option[0] +
                     "\n  fix: leave one of the two out\n");
  }
  for (const std::vector<std::string>& one : {std::vector<std::string>{"--why", "0"}, {"--stage", "model"}}) {
    const auto result = place.run({"plan", "tiny.lua", one[0], one[1], "--json"});
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(parse_lines(result.out).at(0).at("error").at("code"), "R026") << result.out;
  }
  EXPECT_EQ(place.run({"plan", "tiny.lua", "--stage", "program"}).out, place.run({"plan", "tiny.lua"}).out);
}

// What there is of a recipe that is refused is printed all the same.
TEST(CommandLine, the_stages_of_a_plan_that_is_refused) {
  const Workplace place;
  const auto model = place.run({"plan", "tiny.lua", "--stage", "model"});
  EXPECT_TRUE(model.out.starts_with("stage model: ")) << model.out;
  const auto refused = [&](const std::string& code, const std::string& stage, const std::string& printed,
                           std::vector<std::string> options) {
    options.insert(options.begin(), {"plan", "tiny.lua", "--stage", stage});
    const auto result = place.run(options);
    EXPECT_EQ(result.code, 2);
    EXPECT_NE(result.err.find("error[" + code + "]"), std::string::npos) << result.err;
    EXPECT_TRUE(result.out.starts_with("stage " + printed + ": ")) << result.out;
    return result.out;
  };
  refused("P010", "joint", "model", {"batch=7", "--ranks", "2"});
  for (const std::string stage : {"model", "placed", "joint"}) {
    EXPECT_EQ(refused("P035", stage, stage, {"--memory", "1KiB"}),
              place.run({"plan", "tiny.lua", "--stage", stage}).out);
  }
  const auto program = place.run({"plan", "tiny.lua", "--memory", "1KiB"});
  EXPECT_EQ(program.code, 2);
  EXPECT_EQ(program.out, place.run({"plan", "tiny.lua"}).out);
  EXPECT_NE(program.err.find("error[P035]"), std::string::npos) << program.err;
}

TEST(Folders, of_another_run_are_refused_before_the_first_step) {
  const Workplace place;
  ASSERT_EQ(place.run({"train", "tiny.lua", "--run-dir", "run", "steps=2", "save=2"}).code, 0);
  std::filesystem::remove(place.at("run/run.json"));
  const CommandResult result = place.run({"train", "tiny.lua", "--run-dir", "run", "steps=4", "save=4"});
  EXPECT_EQ(result.code, 5) << result.out;
  EXPECT_NE(result.err.find("error[C010]: holds a checkpoint of run"), std::string::npos) << result.err;
  EXPECT_EQ(result.out.find("step "), std::string::npos) << result.out;
}

// A path of this machine looks like a pointer into the recipe.
TEST(Folders, that_are_absolute_are_no_places_in_the_recipe) {
  const Workplace place;
  ASSERT_EQ(place.run({"train", "tiny.lua", "--run-dir", place.at("run"), "steps=2"}).code, 0);
  const CommandResult result = place.run({"eval", place.at("run")});
  EXPECT_EQ(result.err, "error[C001]: no checkpoint can be loaded\n  --> " + place.at("run/checkpoints") +
                            "\n  fix: check the folder, or start without resuming\n");
}

}  // namespace
}  // namespace tenon::test
