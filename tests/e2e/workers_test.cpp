// Workers that die: the command ends with their name, leaves nothing behind, and the run can go on.
#include "workplace.hpp"

namespace tenon::test {
namespace {

const std::vector<std::string> kLong{"mode=exact", "kernels=kernels/reference", "comm=comm/ucx", "steps=80",
                                     "save=5"};

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// Process of rank `rank`; 0 when there is none.
pid_t worker_of(const Command& command, int rank) {
  for (const ProcessInfo& process : command.group()) {
    const auto& a = process.arguments;
    const auto at = std::find(a.begin(), a.end(), "--rank");
    if (a.size() > 1 && a[1] == "worker" && at != a.end() && *(at + 1) == std::to_string(rank))
      return process.pid;
  }
  return 0;
}

std::string killed(int rank, pid_t pid) {
  return "error[W002]: rank " + std::to_string(rank) + " (process " + std::to_string(pid) +
         ") was killed by signal 9 (Killed)\n  fix: tenon resume run\n";
}

// Kills `victim` of `ranks` behind the first save; the run goes on to the end of an undisturbed one.
void expect_death_is_told(int ranks, int victim) {
  SCOPED_TRACE("rank " + std::to_string(victim) + " of " + std::to_string(ranks));
  const Workplace place;
  const Leftovers before;
  const auto command =
      place.start(with({"train", "tiny.lua", "-n", std::to_string(ranks), "--run-dir", "run"}, kLong));
  ASSERT_TRUE(command->wait_for("save     5", kPatience)) << command->finish(0).err;
  const pid_t pid = worker_of(*command, victim);
  ASSERT_GT(pid, 0);
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  const CommandResult result = command->finish(kPatience);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.code, 4) << result.out;
  EXPECT_EQ(result.err, killed(victim, pid));
  EXPECT_EQ(before.after(*command), "");
  const auto resumed = place.run({"resume", "run", "--json", "-n", std::to_string(ranks)});
  ASSERT_EQ(resumed.code, 0) << resumed.out << resumed.err;
  const CommandRecord undisturbed = train(place, "undisturbed", 1, kLong);
  const int64_t from = events(parse_lines(resumed.out), "resume").at(0).at("step");
  EXPECT_GE(from, 5);
  EXPECT_EQ(steps_of(resumed.out),
            std::vector<Step>(undisturbed.steps.begin() + from, undisturbed.steps.end()));
  expect_same(saved_state(place.at("run")), undisturbed.saved, "resumed");
}

TEST(Workers, a_killed_one_of_two_is_named_and_the_run_goes_on) { expect_death_is_told(2, 1); }
TEST(Workers, a_killed_first_one_is_named_and_the_run_goes_on) { expect_death_is_told(2, 0); }
TEST(Workers, a_killed_one_of_four_is_named_and_the_run_goes_on) { expect_death_is_told(4, 2); }

TEST(Workers, a_death_is_an_error_in_json_too) {
  const Workplace place;
  const auto command =
      place.start(with({"train", "tiny.lua", "--json", "-n", "2", "--run-dir", "run"}, kLong));
  ASSERT_TRUE(command->wait_for("\"event\":\"step\"", kPatience));
  const pid_t pid = worker_of(*command, 1);
  ASSERT_GT(pid, 0);
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  const CommandResult result = command->finish(kPatience);
  EXPECT_EQ(result.code, 4);
  EXPECT_EQ(result.err, "");
  const json error = parse_lines(result.out).back().at("error");
  EXPECT_EQ(error.at("code"), "W002");
  EXPECT_EQ(error.at("fix"), "tenon resume run");
}

TEST(Workers, do_not_outlive_a_killed_launcher) {
  const Workplace place;
  const Leftovers before;
  const auto command =
      place.start(with({"train", "tiny.lua", "--json", "-n", "2", "--run-dir", "run"}, kLong));
  ASSERT_TRUE(command->wait_for("\"event\":\"step\"", kPatience));
  EXPECT_EQ(command->group().size(), 3u);
  command->signal(SIGKILL);
  EXPECT_EQ(command->finish(kPatience).signal, SIGKILL);
  EXPECT_EQ(before.after(*command), "");
}

TEST(Workers, that_all_fail_alike_are_one_error) {
  const Workplace place;
  const Leftovers before;
  const auto command = place.start({"train", "tiny.lua", "-n", "2", "comm=comm/ucx", "lr=1e30", "optim=sgd",
                                    "clip=0", "--run-dir", "run"});
  const CommandResult result = command->finish(kPatience);
  EXPECT_EQ(result.code, 1) << result.out << result.err;
  const bool first = result.err.starts_with("error[N001]: rank 0: step "),
             second = result.err.starts_with("error[N001]: rank 1: step ");
  // Rank 0's, unless rank 1 ran into it so much earlier that rank 0 was told to stop before.
  EXPECT_TRUE(first || second) << result.err;
  EXPECT_EQ(result.err.find("error[", 1), std::string::npos) << result.err;
  EXPECT_EQ(before.after(*command), "");
}

}  // namespace
}  // namespace tenon::test
