// Stopping and going on through the command: the end is the undisturbed run's, bit for bit.
#include "run/checkpoint/load.h"
#include "workplace.hpp"

namespace tenon::test {
namespace {

// A copy of a run as it would be had it ended right behind the save of step `keep`.
void copy_until(const Workplace& place, const std::string& from, const std::string& to, int64_t keep) {
  std::filesystem::copy(place.at(from), place.at(to), std::filesystem::copy_options::recursive);
  for (const auto& entry : std::filesystem::directory_iterator(place.at(to) + "/checkpoints")) {
    const auto step = checkpoint::step_of(entry.path().filename());
    if (step && *step > keep) std::filesystem::remove_all(entry.path());
  }
  ASSERT_EQ(saved_state(place.at(to)).step, keep);
}

// Resumes `run` on `ranks` and compares with the undisturbed run from step `from` on.
void expect_same_end(const Workplace& place, const std::string& run, int ranks, int64_t from,
                     const CommandRecord& undisturbed) {
  const auto result = place.run({"resume", run, "--json", "-n", std::to_string(ranks)});
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  const auto resumed = events(parse_lines(result.out), "resume");
  ASSERT_EQ(resumed.size(), 1u);
  EXPECT_EQ(resumed[0].at("step"), from);
  const std::vector<Step> rest(undisturbed.steps.begin() + from, undisturbed.steps.end());
  EXPECT_EQ(steps_of(result.out), rest);
  expect_same(saved_state(place.at(run)), undisturbed.saved, run);
}

TEST(Resume, at_any_step_gives_the_bits_of_the_undisturbed_run) {
  const Workplace place;
  const CommandRecord whole = train(place, "whole", 1, {"steps=8", "save=1", "keep=20"});
  ASSERT_EQ(whole.steps.size(), 8u);
  for (int64_t step = 1; step < 8; ++step) {
    const std::string run = "from" + std::to_string(step);
    copy_until(place, "whole", run, step);
    expect_same_end(place, run, 1, step, whole);
  }
}

TEST(Resume, of_two_processes_gives_the_bits_of_the_undisturbed_run) {
  const Workplace place;
  const CommandRecord whole =
      train(place, "whole", 2, {"steps=8", "save=1", "keep=20", "comm=comm/ucx", "optim=sgd", "lr=0.1"});
  for (int64_t step : {1, 5}) {
    const std::string run = "from" + std::to_string(step);
    copy_until(place, "whole", run, step);
    expect_same_end(place, run, 2, step, whole);
  }
}

TEST(Resume, in_exact_mode_may_change_the_number_of_processes) {
  const Workplace place;
  const CommandRecord whole =
      train(place, "whole", 2, {"mode=exact", "steps=6", "save=1", "keep=20", "comm=comm/ucx"});
  for (int ranks : {1, 4}) {
    const std::string run = "on" + std::to_string(ranks);
    copy_until(place, "whole", run, 3);
    expect_same_end(place, run, ranks, 3, whole);
  }
}

TEST(Resume, in_exact_mode_may_change_the_number_of_virtual_ranks) {
  const Workplace place;
  const CommandRecord whole = train(place, "whole", 4, {"mode=exact", "steps=6", "save=1", "keep=20"});
  for (int ranks : {1, 2, 8}) {
    const std::string run = "on" + std::to_string(ranks);
    copy_until(place, "whole", run, 3);
    expect_same_end(place, run, ranks, 3, whole);
  }
}

TEST(Resume, takes_as_many_ranks_as_before_unless_told_otherwise) {
  const Workplace place;
  train(place, "whole", 2, {"steps=4", "save=2", "keep=20"});
  copy_until(place, "whole", "again", 2);
  const auto result = place.run({"resume", "again"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("mesh dp 2,"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("from     2  again/checkpoints/step-2\n"), std::string::npos) << result.out;
}

TEST(Resume, of_a_finished_run_does_nothing) {
  const Workplace place;
  const CommandRecord whole = train(place, "whole", 1, {"steps=3", "save=3"});
  expect_same_end(place, "whole", 1, 3, whole);
}

TEST(Resume, of_a_finished_run_says_so_and_what_can_be_done) {
  const Workplace place;
  train(place, "whole", 2, {"steps=3", "save=3", "comm=comm/ucx"});
  const auto result = place.run({"resume", "whole"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(result.out.ends_with(
      "finished  whole: step 3 of 3 is done\n"
      "a run keeps its number of steps; for more, start another: tenon train, with more steps in the recipe\n"
      "to use this one: tenon eval whole, tenon sample whole\n"))
      << result.out;
}

TEST(Resume, counts_attempts_in_the_metrics) {
  const Workplace place;
  train(place, "whole", 1, {"steps=4", "save=2", "keep=20"});
  copy_until(place, "whole", "again", 2);
  EXPECT_EQ(place.run({"resume", "again"}).code, 0);
  std::vector<std::pair<int, int>> seen;
  for (const json& e : events(parse_lines(place.read("again/metrics.jsonl")), "step"))
    seen.emplace_back(e.at("attempt"), e.at("step"));
  EXPECT_EQ(seen, (std::vector<std::pair<int, int>>{{1, 1}, {1, 2}, {1, 3}, {1, 4}, {2, 3}, {2, 4}}));
}

TEST(Resume, passes_over_a_cut_checkpoint_and_says_so) {
  const Workplace place;
  const CommandRecord whole = train(place, "whole", 1, {"steps=4", "save=2", "keep=20"});
  std::filesystem::resize_file(place.at("whole/checkpoints/step-4/manifest.json"), 100);
  const auto result = place.run({"resume", "whole"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("warning: passed over whole/checkpoints/step-4: "), std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("from     2  whole/checkpoints/step-2\n"), std::string::npos) << result.out;
  expect_same(saved_state(place.at("whole")), whole.saved, "whole");
}

// -- Ctrl-C -------------------------------------------------------------------------------------------

struct Stop {
  int ranks;
  int signal;
  bool whole_group;  // as a terminal does
};

// Steps slow enough that the signal arrives in the middle of the run.
const std::vector<std::string> kSlow{"mode=exact", "kernels=kernels/reference", "comm=comm/ucx", "steps=200",
                                     "save=200"};

void expect_stops_and_goes_on(const Stop& stop) {
  const Workplace place;
  const Leftovers before;
  std::vector<std::string> arguments{"train",     "tiny.lua", "--json", "-n", std::to_string(stop.ranks),
                                     "--run-dir", "run"};
  arguments.insert(arguments.end(), kSlow.begin(), kSlow.end());
  const auto command = place.start(arguments);
  ASSERT_TRUE(command->wait_for("\"event\":\"step\"", kPatience, 3));
  if (stop.whole_group)
    command->signal_group(stop.signal);
  else
    command->signal(stop.signal);
  const CommandResult stopped = command->finish(kPatience);
  ASSERT_EQ(stopped.code, 75) << stopped.out << stopped.err;
  EXPECT_EQ(before.after(*command), "");
  EXPECT_EQ(parse_lines(stopped.out).back(), (json{{"event", "end"}, {"finished", false}, {"run", "run"}}));
  const std::vector<Step> first = steps_of(stopped.out);
  EXPECT_EQ(saved_state(place.at("run")).step, static_cast<int64_t>(first.size()))
      << "all steps that were done are saved";
  const CommandRecord undisturbed = train(place, "undisturbed", 1, kSlow);
  EXPECT_EQ(first, std::vector<Step>(undisturbed.steps.begin(),
                                     undisturbed.steps.begin() + static_cast<long>(first.size())));
  expect_same_end(place, "run", stop.ranks, static_cast<int64_t>(first.size()), undisturbed);
}

TEST(CtrlC, finishes_the_step_saves_and_the_run_goes_on_as_if_undisturbed) {
  expect_stops_and_goes_on({1, SIGINT, true});
}
TEST(CtrlC, stops_all_processes_at_the_same_step) { expect_stops_and_goes_on({2, SIGINT, true}); }
TEST(CtrlC, a_termination_of_the_command_alone_does_the_same) {
  expect_stops_and_goes_on({2, SIGTERM, false});
}

TEST(CtrlC, tells_how_to_go_on) {
  const Workplace place;
  std::vector<std::string> arguments{"train", "tiny.lua", "--run-dir", "run"};
  arguments.insert(arguments.end(), kSlow.begin(), kSlow.end());
  const auto command = place.start(arguments);
  ASSERT_TRUE(command->wait_for("step     1/200", kPatience));
  command->signal_group(SIGINT);
  const CommandResult stopped = command->finish(kPatience);
  EXPECT_EQ(stopped.code, 75) << stopped.out << stopped.err;
  EXPECT_EQ(stopped.err, "");
  EXPECT_TRUE(stopped.out.ends_with("stopped and saved; go on with: tenon resume run\n")) << stopped.out;
}

void expect_second_ends_at_once(int ranks) {
  const Workplace place;
  const Leftovers before;
  const auto command =
      place.start({"train", "tiny.lua", "--json", "-n", std::to_string(ranks), "--run-dir", "run",
                   "comm=comm/ucx", "kernels=kernels/reference", "width=512", "batch=256"});
  ASSERT_TRUE(command->wait_for("\"event\":\"start\"", kPatience));
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(300)); };
  pause();  // the step, which takes many seconds, has begun
  command->signal_group(SIGINT);
  pause();  // two of a kind that are both pending would be one
  command->signal_group(SIGINT);
  const CommandResult ended = command->finish(kPatience);
  EXPECT_EQ(ended.signal, SIGINT) << ended.code << ended.out << ended.err;
  EXPECT_TRUE(steps_of(ended.out).empty()) << "it waited for the step";
  EXPECT_FALSE(std::filesystem::exists(place.at("run/checkpoints"))) << "it waited for a save";
  EXPECT_EQ(before.after(*command), "");
}

TEST(CtrlC, a_second_one_ends_the_run_at_once) { expect_second_ends_at_once(1); }
TEST(CtrlC, a_second_one_ends_all_processes_at_once) { expect_second_ends_at_once(2); }

}  // namespace
}  // namespace tenon::test
