// Workers that die: the command ends with their name, leaves nothing behind, and the run can go on.
#include <cstring>
#include <thread>

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

// What is told of a process that was killed. It may have been in a call.
void expect_told(const std::string& text, const std::string& who, pid_t pid, int signal) {
  const std::string first = "error[W002]: " + who + " (process " + std::to_string(pid) +
                            ") was killed by signal " + std::to_string(signal) + " (" + strsignal(signal) +
                            ")\n";
  EXPECT_TRUE(text.starts_with(first)) << text;
  EXPECT_TRUE(text.ends_with("\n  fix: tenon resume run\n")) << text;
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
  expect_told(result.err, "rank " + std::to_string(victim), pid, SIGKILL);
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
  ASSERT_TRUE(command->wait_for("\"event\":\"save\"", kPatience));
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
  EXPECT_EQ(command->group().size(), 4u) << "the command, the launcher, two workers";
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

// -- Ranks that are threads of one process ----------------------------------------------------------------

// The process that a command watches over.
pid_t child_of(const Command& command) {
  for (const ProcessInfo& process : command.group()) {
    if (process.pid != command.pid()) return process.pid;
  }
  return 0;
}

// There is nothing to go on from.
TEST(Workers, a_death_before_the_first_save_comes_without_advice) {
  for (const bool worker : {false, true}) {
    const Workplace place;
    const std::vector<std::string> many{"steps=1000000", worker ? "comm=comm/ucx" : "comm=comm/local"};
    const auto command =
        place.start(with({"train", "tiny.lua", "--json", "-n", "2", "--run-dir", "run"}, many));
    ASSERT_TRUE(command->wait_for("\"event\":\"step\"", kPatience));
    const pid_t pid = worker ? worker_of(*command, 1) : child_of(*command);
    ASSERT_GT(pid, 0);
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    const CommandResult result = command->finish(kPatience);
    const json error = parse_lines(result.out).back().at("error");
    EXPECT_EQ(error.at("code"), "W002");
    EXPECT_EQ(error.at("fix"), "");
  }
}

void expect_death_of_threads_is_told(int ranks, int signal) {
  SCOPED_TRACE(strsignal(signal));
  const Workplace place;
  const Leftovers before;
  const auto command = place.start(
      {"train", "tiny.lua", "--run-dir", "run", "-n", std::to_string(ranks), "steps=1000000", "save=5"});
  ASSERT_TRUE(command->wait_for("save     5", kPatience)) << command->finish(0).err;
  const pid_t pid = child_of(*command);
  ASSERT_GT(pid, 0);
  ASSERT_EQ(kill(pid, signal), 0);
  const CommandResult result = command->finish(kPatience);
  EXPECT_EQ(result.code, 4) << result.out;
  expect_told(result.err, "tenon", pid, signal);
  EXPECT_EQ(result.out.find("done"), std::string::npos);
  EXPECT_EQ(before.after(*command), "");
}

TEST(Threads, of_one_rank_that_die_are_told) {
  for (const int signal : {SIGKILL, SIGABRT}) expect_death_of_threads_is_told(1, signal);
}
TEST(Threads, of_several_ranks_that_die_are_told) { expect_death_of_threads_is_told(4, SIGABRT); }

TEST(Threads, do_not_outlive_a_killed_command) {
  const Workplace place;
  const Leftovers before;
  const auto command = place.start({"train", "tiny.lua", "--run-dir", "run", "steps=1000000"});
  ASSERT_TRUE(command->wait_for("step ", kPatience));
  EXPECT_EQ(command->group().size(), 2u) << "the command, and what it watches over";
  command->signal(SIGKILL);
  EXPECT_EQ(command->finish(kPatience).signal, SIGKILL);
  EXPECT_EQ(before.after(*command), "");
}

// -- SIGTERM, once and again ------------------------------------------------------------------------------

TEST(Termination, a_second_one_ends_a_run_whose_worker_stands_still) {
  const Workplace place;
  const Leftovers before;
  const auto command = place.start(with({"train", "tiny.lua", "-n", "2", "--run-dir", "run"}, kLong));
  ASSERT_TRUE(command->wait_for("save     5", kPatience));
  ASSERT_EQ(kill(worker_of(*command, 1), SIGSTOP), 0);
  command->signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  EXPECT_EQ(command->group().size(), 4u) << "one is not enough: it waits for the step";
  command->signal(SIGTERM);
  const CommandResult result = command->finish(kPatience);
  EXPECT_EQ(result.signal, SIGTERM) << result.code << result.out << result.err;
  EXPECT_EQ(before.after(*command), "");
}

// As `timeout` sends it: to the command, and to its group.
TEST(Termination, two_within_a_second_are_one) {
  const Workplace place;
  const auto command = place.start(with({"train", "tiny.lua", "--run-dir", "run"}, kLong));
  ASSERT_TRUE(command->wait_for("step ", kPatience));
  command->signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  command->signal_group(SIGTERM);
  const CommandResult result = command->finish(kPatience);
  EXPECT_EQ(result.code, 75) << result.signal << result.out << result.err;
}

TEST(Termination, ends_a_verb_that_has_nothing_to_save) {
  const Workplace place;
  const auto command = place.start({"bench", "step", "tiny.lua", "width=256", "batch=256"});
  while (command->group().size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  command->signal(SIGTERM);
  const CommandResult result = command->finish(kPatience);
  EXPECT_EQ(result.signal, SIGTERM) << result.code << result.out << result.err;
  EXPECT_EQ(result.err, "");
}

TEST(Termination, that_was_asked_for_hides_no_other) {
  const Workplace place;
  const auto command = place.start({"train", "tiny.lua", "--run-dir", "run", "steps=1000000", "save=5"});
  ASSERT_TRUE(command->wait_for("save     5", kPatience)) << command->finish(0).err;
  const pid_t pid = child_of(*command);
  ASSERT_GT(pid, 0);
  ASSERT_EQ(kill(pid, SIGSTOP), 0);  // it does not stop by itself before
  command->signal(SIGTERM);
  ASSERT_EQ(kill(pid, SIGKILL), 0);  // as a system that is out of memory does
  const CommandResult result = command->finish(kPatience);
  EXPECT_EQ(result.code, 4) << result.signal << result.out;
  expect_told(result.err, "tenon", pid, SIGKILL);
}

// -- Readers that go away ---------------------------------------------------------------------------------

TEST(Readers, that_go_away_end_a_run_by_the_signal_for_that) {
  for (const char* const ranks : {"-n 1", "-n 4", "-n 2 comm=comm/ucx"}) {
    SCOPED_TRACE(ranks);
    const Workplace place;
    const Leftovers before;
    const std::string line = std::string(TENON) + " train tiny.lua steps=1000000 " + ranks +
                             " | head -n 1 >/dev/null; exit ${PIPESTATUS[0]}";
    Command command({"/bin/bash", "-c", line}, place.path());
    const CommandResult result = command.finish(kPatience);
    EXPECT_FALSE(result.timed_out);
    EXPECT_EQ(result.code, 128 + SIGPIPE) << result.err;
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(before.after(command), "");
  }
}

TEST(Readers, without_room_are_an_error) {
  for (const char* const words : {"check tiny.lua", "plan tiny.lua --json", "plugins", "train tiny.lua"}) {
    SCOPED_TRACE(words);
    const Workplace place;
    const std::string line = std::string(TENON) + " " + words + " >/dev/full";
    Command command({"/bin/bash", "-c", line}, place.path());
    const CommandResult result = command.finish(kPatience);
    EXPECT_EQ(result.code, 3);
    EXPECT_NE(result.err.find("error[E011]: not all of the output could be written"), std::string::npos)
        << result.err;
  }
}

// -- A worker ---------------------------------------------------------------------------------------------

TEST(Workers, do_nothing_for_a_launcher_that_is_gone) {
  const Workplace place;
  const CommandResult result =
      place.run({"worker", "--run-dir", "run", "--rank", "0", "--world", "2", "--launcher", "1", "--port",
                 "1", "--secret-fd", "0", "--report-fd", "1", "--trail-fd", "2"});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.out, "") << "a report";
}

}  // namespace
}  // namespace tenon::test
