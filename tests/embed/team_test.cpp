// The threads of a run and the log that they share with the embedding program.
#include "embed/team.h"

#include <fenv.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <stdexcept>

#include "tenon/host.h"

namespace tenon::embed {
namespace {

struct Seen {
  std::thread::id thread;
  std::vector<std::string> lines;
  std::atomic<int> inside{0};
  std::atomic<bool> overlapped{false};
  bool elsewhere = false;
};

void note(void* user, uint32_t, const char* source, uint32_t, const char* message) {
  Seen& seen = *static_cast<Seen*>(user);
  if (++seen.inside != 1) seen.overlapped = true;
  std::this_thread::yield();  // room for another to come in
  seen.elsewhere |= seen.thread != std::thread::id() && std::this_thread::get_id() != seen.thread;
  seen.lines.push_back(std::string(source) + ": " + message);
  --seen.inside;
}

std::unique_ptr<Team> team_of(int size, LogQueue& log) {
  auto team = Team::start(size, log);
  EXPECT_TRUE(team.ok());
  return std::move(team).value();
}

TEST(Team, every_thread_runs_every_task_once) {
  LogQueue log(nullptr, nullptr);
  const auto team = team_of(4, log);
  std::array<int, 4> runs{};
  std::array<std::thread::id, 4> threads;
  for (int round = 1; round <= 200; ++round) {
    team->run([&](int i) {
      const auto at = static_cast<size_t>(i);
      if (round == 1) threads[at] = std::this_thread::get_id();
      if (threads[at] == std::this_thread::get_id()) ++runs[at];
    });
    EXPECT_EQ(runs, (std::array<int, 4>{round, round, round, round}));
  }
}

TEST(Team, its_threads_block_signals_and_round_to_nearest_whatever_the_caller_and_the_last_task_did) {
  LogQueue log(nullptr, nullptr);
  fesetround(FE_UPWARD);
  const auto team = team_of(1, log);
  int rounding = -1, blocked = 0;
  const auto look = [&](int) {
    rounding = fegetround();
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked = sigismember(&mask, SIGTERM) + sigismember(&mask, SIGINT) + sigismember(&mask, SIGCHLD);
    fesetround(FE_DOWNWARD);
  };
  for (int i = 0; i < 2; ++i) {
    team->run(look);
    EXPECT_EQ(rounding, FE_TONEAREST);
    EXPECT_EQ(blocked, 3);
  }
  EXPECT_EQ(fegetround(), FE_UPWARD);
  fesetround(FE_TONEAREST);
  sigset_t mine;
  pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  EXPECT_EQ(sigismember(&mine, SIGTERM), 0);
}

TEST(Log, lines_arrive_while_the_task_still_runs_on_the_callers_thread) {
  Seen seen;
  seen.thread = std::this_thread::get_id();
  std::atomic<int> delivered{0};
  struct Both {
    Seen* seen;
    std::atomic<int>* delivered;
  } both{&seen, &delivered};
  LogQueue log(
      [](void* user, uint32_t level, const char* source, uint32_t line, const char* message) {
        const Both& b = *static_cast<Both*>(user);
        note(b.seen, level, source, line, message);
        b.delivered->fetch_add(1);
        b.delivered->notify_all();
      },
      &both);
  const auto team = team_of(2, log);
  team->run([&](int i) {
    log.push(TENON_LOG_INFO, "rank", 0, std::to_string(i));
    for (int n; (n = delivered.load()) < 2;) delivered.wait(n);  // hangs if they only come afterwards
  });
  EXPECT_EQ(seen.lines.size(), 2u);
  EXPECT_FALSE(seen.elsewhere);
}

TEST(Log, two_callers_get_every_line_once_and_one_at_a_time) {
  Seen seen;
  LogQueue log(note, &seen);
  constexpr int kRounds = 500;
  const auto caller = [&] {
    const auto team = team_of(2, log);
    for (int round = 0; round < kRounds; ++round) {
      team->run([&](int) { log.push(TENON_LOG_INFO, "rank", 0, "line"); });
      log.deliver();
    }
  };
  std::thread other(caller);
  caller();
  other.join();
  log.deliver();
  EXPECT_EQ(seen.lines.size(), 4u * kRounds);
  EXPECT_FALSE(seen.overlapped);
}

TEST(Log, what_does_not_fit_between_two_calls_is_counted) {
  Seen seen;
  LogQueue log(note, &seen);
  for (int i = 0; i < 5000; ++i) log.push(TENON_LOG_INFO, "rank", 0, std::to_string(i));
  log.deliver();
  ASSERT_EQ(seen.lines.size(), 4097u);
  EXPECT_EQ(seen.lines.front(), "rank: 0");
  EXPECT_EQ(seen.lines[4095], "rank: 4095");
  EXPECT_EQ(seen.lines.back(), "log: 904 lines were lost: more than 4096 came between two calls");
}

TEST(Log, a_callback_that_throws_loses_its_line_only) {
  int calls = 0;
  LogQueue log(
      [](void* user, uint32_t, const char*, uint32_t, const char*) {
        if (++*static_cast<int*>(user) == 1) throw std::runtime_error("no");
      },
      &calls);
  log.push(TENON_LOG_INFO, "rank", 0, "one");
  log.push(TENON_LOG_INFO, "rank", 0, "two");
  log.deliver();
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace tenon::embed
