// The folder of a run: one writer, in place while it is written, and nothing lost with what was never saved.
#include <unistd.h>

#include "workplace.hpp"

namespace tenon::test {
namespace {

// Enough that it does not end before it is disturbed.
const std::vector<std::string> kEndless{"steps=1000000", "save=100000000"};
const char* const kTaken =
    "error[R027]: another process trains in run\n"
    "  fix: wait for its end, or stop it; or train in another folder\n";

std::vector<std::string> training(int ranks, const std::vector<std::string>& more) {
  std::vector<std::string> out{"train", "tiny.lua", "-n", std::to_string(ranks), "--run-dir", "run"};
  if (ranks > 1) out.emplace_back("comm=comm/ucx");
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

class Writers : public testing::TestWithParam<int> {};

TEST_P(Writers, there_is_one_and_its_death_frees_the_folder) {
  const Workplace place;
  const auto first = place.start(training(GetParam(), kEndless));
  ASSERT_TRUE(first->wait_for("step ", kPatience, 3));
  for (const auto& arguments : {std::vector<std::string>{"resume", "run"}, training(1, {"steps=1"})}) {
    const CommandResult refused = place.run(arguments);
    EXPECT_EQ(refused.code, 2) << refused.out;
    EXPECT_EQ(refused.err, kTaken);
    EXPECT_EQ(refused.out, "");
  }
  ASSERT_TRUE(first->wait_for("step ", kPatience, 6)) << "the first goes on";
  first->signal(SIGKILL);
  EXPECT_EQ(first->finish(kPatience).signal, SIGKILL);
  while (!first->group().empty()) usleep(1000);  // the ranks end with it
  const auto second = place.start({"resume", "run"});
  EXPECT_TRUE(second->wait_for("step ", kPatience)) << "the folder is free";
  second->signal_group(SIGKILL);
  second->finish(kPatience);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Writers, testing::Values(1, 2));

TEST(RunFolder, that_is_moved_under_a_run_fails_it) {
  for (const char* const what : {"run", "run/run.json"}) {
    const Workplace place;
    const auto run = place.start(training(1, {"steps=300", "save=0"}));
    ASSERT_TRUE(run->wait_for("step ", kPatience, 3));
    std::filesystem::rename(place.at(what), place.at("away"));
    const CommandResult result = run->finish(kPatience);
    EXPECT_EQ(result.code, 3) << result.out;
    EXPECT_NE(result.err.find("error[E014]: the folder of the run was moved or removed"), std::string::npos)
        << result.err;
    EXPECT_EQ(result.out.find("done"), std::string::npos) << result.out;
    EXPECT_TRUE(std::filesystem::exists(place.at("away"))) << "nothing is lost";
  }
}

TEST(RunFolder, gets_a_lost_recipe_back_from_its_checkpoint) {
  const Workplace place;
  ASSERT_EQ(place.run(training(1, {"steps=6", "save=3", "keep=9"})).code, 0);
  std::filesystem::copy(place.at("run"), place.at("whole"), std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(place.at("run/checkpoints/step-6"));
  const json before = json::parse(place.read("run/run.json"));
  std::filesystem::remove(place.at("run/run.json"));
  const CommandResult resumed = place.run({"resume", "run"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(resumed.err, "warning: run/run.json was lost, and is made anew from run/checkpoints/step-3\n");
  const json after = json::parse(place.read("run/run.json"));
  for (const char* const key : {"tenon", "run_id", "root", "recipe"})
    EXPECT_EQ(after.at(key), before.at(key));
  expect_same(saved_state(place.at("run")), saved_state(place.at("whole")), "resumed");
}

// What a writer that died left of a file is no obstacle.
TEST(RunFolder, is_written_over_half_a_file) {
  const Workplace place;
  std::filesystem::create_directory(place.at("run"));
  place.write("run/run.json.partial", "{\"ten");
  ASSERT_EQ(place.run(training(1, {"steps=1"})).code, 0);
  EXPECT_FALSE(std::filesystem::exists(place.at("run/run.json.partial")));
  EXPECT_EQ(json::parse(place.read("run/run.json")).at("tenon"), 1);
}

TEST(RunFolder, of_a_run_that_saved_nothing_starts_anew) {
  for (const int ranks : {1, 2}) {
    const Workplace place;
    const std::vector<std::string> some{"steps=40", "save=40"};
    const auto killed = place.start(training(ranks, some));
    ASSERT_TRUE(killed->wait_for("step ", kPatience, 3));
    killed->signal_group(SIGKILL);
    killed->finish(kPatience);
    const CommandRecord resumed = record_of(place, "run", {"resume", "run", "--json"});
    const auto told = events(parse_lines(resumed.result.out), "resume");
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].at("step"), 0);
    EXPECT_EQ(told[0].at("checkpoint"), "");
    std::filesystem::rename(place.at("run"), place.at("first"));
    std::vector<std::string> told_in_json = training(ranks, some);
    told_in_json.emplace_back("--json");
    const CommandRecord whole = record_of(place, "run", told_in_json);
    EXPECT_EQ(resumed.steps, whole.steps);
    expect_same(resumed.saved, whole.saved, std::to_string(ranks));
  }
}

TEST(RunFolder, has_the_name_of_the_recipe_and_no_other_place) {
  const Workplace place;
  for (const std::string name : {"../../x", "/tmp/x", ".x", "a b", ""}) {
    place.write_changed("named.lua", "return t.run {", "return t.run { name = \"" + name + "\",");
    const CommandResult refused = place.run({"train", "named.lua", "steps=1"});
    EXPECT_EQ(refused.code, 2) << name;
    EXPECT_NE(refused.err.find("error[R005]: the recipe is called \"" + name), std::string::npos)
        << refused.err;
    EXPECT_FALSE(std::filesystem::exists(place.at("runs"))) << name;
  }
  std::filesystem::rename(place.at("tiny.lua"), place.at("-my own: recipe.lua"));
  ASSERT_EQ(place.run({"train", "./-my own: recipe.lua", "steps=1"}).code, 0);
  EXPECT_TRUE(std::filesystem::exists(place.at("runs/my-own--recipe/001/run.json")));
}

}  // namespace
}  // namespace tenon::test
