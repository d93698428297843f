// Every verb of the command on a small model, in plain text and in JSON.
#include "workplace.hpp"

namespace tenon::test {
namespace {

// One trained run for all tests of this file.
class Verbs : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    place_ = new Workplace;
    trained_ = place_->run({"train", "tiny.lua", "steps=60", "lr=0.01", "eval=20", "save=30", "dropout=0",
                            "--json", "--run-dir", "run"});
  }
  static void TearDownTestSuite() { delete place_; }

  static CommandResult sample(std::vector<std::string> more) {
    std::vector<std::string> arguments{"sample", "run", "--prompt", "the ", "--length", "40"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    CommandResult result = place_->run(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    return result;
  }
  static json only_line(const CommandResult& result) {
    EXPECT_EQ(result.code, 0) << result.err;
    const auto lines = parse_lines(result.out);
    EXPECT_EQ(lines.size(), 1u) << result.out;
    return lines.empty() ? json() : lines[0];
  }

  static Workplace* place_;       // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
  static CommandResult trained_;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
};
Workplace* Verbs::place_ = nullptr;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
CommandResult Verbs::trained_;       // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

TEST_F(Verbs, train_prints_every_event_as_one_line_of_json) {
  ASSERT_EQ(trained_.code, 0) << trained_.err;
  EXPECT_EQ(trained_.err, "");
  const auto all = parse_lines(trained_.out);
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.front().at("event"), "start");
  EXPECT_GT(all.front().at("parameters"), 1000);
  EXPECT_EQ(events(all, "step").size(), 60u);
  std::vector<int> evaluated, saved;
  for (const json& e : events(all, "eval")) evaluated.push_back(e.at("step"));
  for (const json& e : events(all, "save")) saved.push_back(e.at("step"));
  EXPECT_EQ(evaluated, (std::vector<int>{20, 40, 60}));
  EXPECT_EQ(saved, (std::vector<int>{30, 60}));
  EXPECT_EQ(all.back(), (json{{"event", "end"}, {"finished", true}, {"run", "run"}}));
}

TEST_F(Verbs, train_lowers_the_loss_in_training_and_on_held_out_data) {
  const auto steps = steps_of(trained_.out);
  ASSERT_EQ(steps.size(), 60u);
  EXPECT_NEAR(steps.front().loss, std::log(256.0), 0.2) << "a fresh model knows nothing";
  EXPECT_LT(steps.back().loss, 3.2);
  const auto evaluated = events(parse_lines(trained_.out), "eval");
  EXPECT_LT(evaluated.back().at("loss"), evaluated.front().at("loss"));
}

TEST_F(Verbs, the_sink_holds_the_same_numbers_as_the_output) {
  std::vector<json> printed = parse_lines(trained_.out);
  printed.pop_back();  // the end is the command's, not the run's
  EXPECT_EQ(parse_lines(place_->read("run/metrics.jsonl")), printed);
}

TEST_F(Verbs, train_reports_resident_memory_as_planned_and_rest) {
  const auto reports = events(parse_lines(trained_.out), "memory");
  ASSERT_EQ(reports.size(), 2u) << "after the first step and at the end";
  for (const json& report : reports) {
    EXPECT_EQ(report.at("resident_bytes"),
              report.at("planned_bytes").get<double>() + report.at("rest_bytes").get<double>());
    EXPECT_GT(report.at("planned_bytes"), 4 * 3 * 10944) << "parameters and two moments";
  }
}

TEST_F(Verbs, train_in_plain_text_shows_model_memory_steps_and_folder) {
  const auto result = place_->run({"train", "tiny.lua", "save=6", "eval=6"});
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* text :
       {"run   runs/tiny/001\n", "10944 parameters in 36 tensors, mesh dp 1, 128 tokens per step\n",
        "memory of a rank: ", "resident ", " = planned ", " + rest ", "step     6/6  loss ",
        "eval     6  validation loss ", "save     6  runs/tiny/001/checkpoints/step-6 ",
        "done  runs/tiny/001\n"}) {
    EXPECT_NE(result.out.find(text), std::string::npos) << text << "\nin\n" << result.out;
  }
  EXPECT_NE(place_->run({"train", "tiny.lua"}).out.find("run   runs/tiny/002\n"), std::string::npos);
}

TEST_F(Verbs, what_a_recipe_prints_reaches_the_user_and_not_the_output) {
  place_->write_changed("talks.lua", "return t.run", "print(\"width is\", p.width)\nreturn t.run");
  const auto result = place_->run({"check", "talks.lua", "--json"});
  EXPECT_EQ(result.err, "width is\t16\n");
  EXPECT_EQ(only_line(result).at("ok"), true);
}

TEST_F(Verbs, eval_gives_the_loss_of_the_last_evaluation) {
  const json last = events(parse_lines(trained_.out), "eval").back();
  const json eval = only_line(place_->run({"eval", "run", "--json"}));
  EXPECT_EQ(eval.at("loss"), last.at("loss"));
  EXPECT_EQ(eval.at("tokens"), last.at("tokens"));
  EXPECT_EQ(eval.at("step"), 60);
  const auto plain = place_->run({"eval", "run"});
  char line[128];
  std::snprintf(line, sizeof line, "step 60  validation loss %.4f nats/token over %d tokens\n",
                last.at("loss").get<double>(), last.at("tokens").get<int>());
  EXPECT_EQ(plain.out, line);
}

TEST_F(Verbs, sample_with_one_seed_writes_one_text_and_with_another_another) {
  const auto text = [](const std::string& seed) { return sample({"--seed", seed, "--top-k", "0"}).out; };
  const std::string first = text("1");
  EXPECT_EQ(first.substr(0, 4), "the ");
  EXPECT_EQ(first.size(), 4u + 40u + 1u);
  EXPECT_EQ(text("1"), first);
  EXPECT_NE(text("2"), first);
}

TEST_F(Verbs, sample_at_temperature_zero_needs_no_luck) {
  const std::string likeliest = sample({"--temperature", "0", "--seed", "1"}).out;
  EXPECT_EQ(sample({"--temperature", "0", "--seed", "2"}).out, likeliest);
  EXPECT_EQ(sample({"--top-k", "1", "--seed", "3"}).out, likeliest)
      << "the one likeliest is what temperature 0 takes";
  EXPECT_NE(sample({"--top-k", "3", "--seed", "3", "--temperature", "5"}).out, likeliest);
}

TEST_F(Verbs, sample_as_json_and_with_a_prompt_longer_than_the_context) {
  const std::string prompt = "the quick brown fox jumps over a lazy dog";
  const json out = only_line(
      place_->run({"sample", "run", "--json", "--prompt", prompt, "--length", "5", "--temperature", "0"}));
  const std::string text = out.at("text");
  EXPECT_EQ(text.size(), prompt.size() + 5);
  EXPECT_EQ(text.substr(0, prompt.size()), prompt);
  EXPECT_EQ(
      only_line(place_->run({"sample", "run", "--json", "--prompt", "abc", "--length", "0"})).at("text"),
      "abc");
}

TEST_F(Verbs, plan_prints_mesh_memory_and_program) {
  const auto plain = place_->run({"plan", "tiny.lua", "-n", "4"});
  EXPECT_EQ(plain.code, 0) << plain.err;
  for (const char* text : {"dp 4", "all_reduce", "memory total", "GFLOP per rank and step"}) {
    EXPECT_NE(plain.out.find(text), std::string::npos) << text << "\nin\n" << plain.out;
  }
  const json plan = only_line(place_->run({"plan", "tiny.lua", "-n", "4", "--json"}));
  EXPECT_EQ(plan.at("mesh"), "dp 4");
  EXPECT_EQ(plan.at("memory").at("param"), plan.at("memory").at("state").get<int64_t>() / 2)
      << "AdamW has two moments";
  EXPECT_EQ(plan.at("program_sha256").get<std::string>().size(), 64u);
  EXPECT_EQ(plan.at("program").size(), plan.at("instructions"));
  for (size_t i = 0; i < plan.at("program").size(); ++i) {
    const json& instruction = plan.at("program")[i];
    EXPECT_EQ(instruction.at("number"), i);
    EXPECT_NE(instruction.at("why").at("because"), "") << instruction;
    for (const json& wait : instruction.at("waits")) EXPECT_LT(wait, i);
    if (!instruction.at("transfer")) continue;
    EXPECT_EQ(instruction.at("axes"), json{"dp"}) << instruction;
    EXPECT_EQ(instruction.at("why").at("strategies")[0].at("id"), "parallel/data") << instruction;
  }
  EXPECT_NE(only_line(place_->run({"plan", "tiny.lua", "-n", "2", "--json"})).at("program_sha256"),
            plan.at("program_sha256"));
}

TEST_F(Verbs, plan_says_what_of_the_simulated_machine_is_imagined) {
  const std::vector<std::string> plan{"plan", "tiny.lua", "-n", "2", "--svg", "step.svg"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = plan;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  const std::vector<std::string> some{"--flops", "2e12"},
      all{"--flops",          "2e12", "--memory-bandwidth", "1e11",
          "--link-bandwidth", "1e10", "--link-latency",     "5e-6"};
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{}, "an imagined machine: 100 GFLOP/s, memory 10 GB/s, links 5 GB/s, after 10 us"},
      {some,
       "a machine given in part: 2 TFLOP/s, memory 10 GB/s (imagined), links 5 GB/s (imagined), after 10 us "
       "(imagined)"},
      {all, "the machine given: 2 TFLOP/s, memory 100 GB/s, links 10 GB/s, after 5 us"}};
  for (const auto& [flags, says] : cases) {
    const auto plain = place_->run(with(flags));
    EXPECT_NE(plain.out.find(says), std::string::npos) << says << "\nin\n" << plain.out << plain.err;
    EXPECT_NE(place_->read("step.svg").find(std::string("simulated on ") + says), std::string::npos) << says;
  }
  const auto imagined = [&](std::vector<std::string> flags) {
    flags.emplace_back("--json");
    return only_line(place_->run(with(flags))).at("machine").at("imagined");
  };
  EXPECT_EQ(imagined({}), (json{"flops", "memory_bandwidth", "link_bandwidth", "link_latency"}));
  EXPECT_EQ(imagined(some), (json{"memory_bandwidth", "link_bandwidth", "link_latency"}));
  EXPECT_EQ(imagined(all), json::array());
}

// As Gemma has them.
TEST_F(Verbs, train_with_capped_logits_lowers_the_loss) {
  place_->write(
      "capped.lua",
      "local t = require \"tenon\"\n"
      "local nn = t.nn\n"
      "return t.run {\n"
      "  steps = 40, batch = 8, context = 16,\n"
      "  model = nn.model(\"capped\", function(tokens)\n"
      "    local x = nn.embedding { tokens, name = \"wte\", dims = { { \"vocab\", 256 }, { \"hidden\", 16 } "
      "} }\n"
      "    return nn.softcap { nn.linear { x, name = \"head\", out = { \"vocab\", 256 } }, cap = 4 }\n"
      "  end),\n"
      "  data = t.data.text { file = \"text.txt\", valid = 0.1 },\n"
      "  optim = t.optim.adamw { lr = 0.05 },\n"
      "}\n");
  const auto plan = place_->run({"plan", "capped.lua"});
  EXPECT_NE(plan.out.find(" softcap "), std::string::npos) << plan.out << plan.err;
  EXPECT_NE(plan.out.find(" softcap_dgrad "), std::string::npos) << plan.out;
  const auto trained = place_->run({"train", "capped.lua", "--json", "--run-dir", "capped"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto steps = steps_of(trained.out);
  ASSERT_FALSE(steps.empty());
  EXPECT_NEAR(steps.front().loss, std::log(256.0), 0.2);
  EXPECT_LT(steps.back().loss, 4);
}

TEST_F(Verbs, evaluation_of_0_batches_is_one_of_all_that_is_held_out) {
  place_->write_changed("all.lua", "batches = 2", "batches = 0");
  const auto tokens = [&](const std::string& recipe) {
    const auto result = place_->run({"train", recipe, "steps=1", "eval=1", "--json"});
    EXPECT_EQ(result.code, 0) << result.err;
    return events(parse_lines(result.out), "eval").at(0).at("tokens").get<int64_t>();
  };
  EXPECT_EQ(tokens("tiny.lua"), 2 * 8 * 16);
  EXPECT_GT(tokens("all.lua"), 2 * 8 * 16);
}

TEST_F(Verbs, check_tells_what_was_proved) {
  const auto plain = place_->run({"check", "tiny.lua", "-n", "4"});
  EXPECT_EQ(plain.code, 0) << plain.err;
  EXPECT_NE(plain.out.find("ok    transfers match and cannot deadlock"), std::string::npos) << plain.out;
  EXPECT_NE(plain.out.find("ok    data: 219 samples of 16 tokens\n0 errors; compiled and proved in "),
            std::string::npos)
      << plain.out;
  const json check = only_line(place_->run({"check", "tiny.lua", "-n", "4", "--json"}));
  EXPECT_EQ(check.at("ok"), true);
  EXPECT_EQ(check.at("program_sha256"),
            only_line(place_->run({"plan", "tiny.lua", "-n", "4", "--json"})).at("program_sha256"));
}

TEST_F(Verbs, plugins_lists_every_shipped_plugin) {
  const auto plain = place_->run({"plugins"});
  std::set<std::string> ids;
  for (const json& plugin : only_line(place_->run({"plugins", "--json"}))) {
    if (!plugin.contains("error")) ids.insert(plugin.at("id"));
  }
  for (const char* id :
       {"comm/local", "comm/ucx", "data/text", "frontend/lua", "kernels/cpu", "kernels/reference",
        "optimizer/adamw", "optimizer/sgd", "parallel/data", "sink/jsonl"}) {
    EXPECT_TRUE(ids.contains(id)) << id;
    EXPECT_NE(plain.out.find(std::string(id) + " "), std::string::npos) << plain.out;
  }
}

TEST_F(Verbs, names_of_folders_need_not_be_text) {
  const std::string name = "caf\xe9";
  const Workplace place;
  std::filesystem::create_directory(place.at(name));
  place.write(name + "/libtenon-sink-none.so", "no library");
  const auto listed = place.run({"plugins", "--json"}, {"TENON_PLUGIN_PATH=" + place.at(name)});
  EXPECT_EQ(listed.code, 0) << listed.signal << listed.err;
  EXPECT_NE(listed.out.find("caf\xef\xbf\xbd/libtenon-sink-none.so"), std::string::npos) << listed.out;
  const auto trained =
      place.run({"train", "tiny.lua", "--json", "--run-dir", name + "/run", "steps=2", "save=1"});
  EXPECT_EQ(trained.code, 0) << trained.signal << trained.err;
  EXPECT_EQ(events(parse_lines(trained.out), "save").size(), 2u);
  const auto shown = place.run({"checkpoint", name + "/run", "--json"});
  EXPECT_EQ(shown.code, 0) << shown.signal << shown.err;
}

TEST_F(Verbs, help_is_no_error) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, {"train", "--help"}}) {
    const auto help = place_->run(arguments);
    EXPECT_EQ(help.code, 0);
    EXPECT_NE(help.out.find("recipe"), std::string::npos) << help.out;
  }
}

}  // namespace
}  // namespace tenon::test
