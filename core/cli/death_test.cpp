#include "cli/death.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "cli/ending.h"

namespace tenon::cli {
namespace {

struct Ended {
  trail::Shared left;
  int status = 0;
};

// A process that ran `body`.
template <class Body>
Ended ended(Body body) {
  Ended out{std::move(trail::Shared::create()).value()};
  const pid_t child = fork();
  if (child == 0) {
    out.left.watch();
    body();
    _exit(99);
  }
  waitpid(child, &out.status, 0);
  return out;
}

std::string cause_of(const Ended& end) {
  const auto death = death_of("it", end.status, end.left);
  EXPECT_EQ(death.has_value(), !ended_as_told(end.status, end.left));
  if (!death) return "";
  EXPECT_EQ(death->code, "W002");
  return death->cause;
}

TEST(Death, is_no_end_that_was_told) {
  for (const int code : {0, 1, 75, 255}) {
    EXPECT_EQ(cause_of(ended([code] { end_process(code); })), "") << code;
  }
  for (const int signal : {SIGPIPE, SIGINT}) {
    EXPECT_EQ(cause_of(ended([signal] { end_by(signal); })), "") << signal;
  }
}

TEST(Death, is_an_end_that_was_not_told) {
  EXPECT_EQ(cause_of(ended([] { _exit(0); })), "it ended with code 0 and said nothing");
  EXPECT_EQ(cause_of(ended([] { kill(getpid(), SIGKILL); })), "it was killed by signal 9 (Killed)");
  EXPECT_EQ(cause_of(ended([] { kill(getpid(), SIGPIPE); })), "it was killed by signal 13 (Broken pipe)");
}

TEST(Death, is_another_end_than_was_told) {
  EXPECT_EQ(cause_of(ended([] { trail::tell_end(1), _exit(0); })), "it ended with code 0, and had said 1");
  EXPECT_EQ(cause_of(ended([] { trail::tell_end(0), _exit(1); })), "it ended with code 1, and had said 0");
  EXPECT_EQ(cause_of(ended([] { trail::tell_end(0), kill(getpid(), SIGKILL); })),
            "it was killed by signal 9 (Killed)");
}

// Of objects that live as long as the process.
TEST(Ending, leaves_nothing_to_be_done) {
  const Ended end = ended([] {
    std::atexit([] { _exit(0); });
    end_process(1);
  });
  EXPECT_EQ(WEXITSTATUS(end.status), 1);
  EXPECT_EQ(cause_of(end), "");
}

TEST(Ending, is_by_a_signal_where_nobody_reads) {
  const Ended end = ended([] {
    int fds[2];
    if (pipe(fds) != 0) _exit(98);
    close(fds[0]);
    dup2(fds[1], STDOUT_FILENO);
    ignore_closed_pipes();
    std::printf("a line\n");
    flush_output();
  });
  EXPECT_TRUE(WIFSIGNALED(end.status));
  EXPECT_EQ(WTERMSIG(end.status), SIGPIPE);
  EXPECT_EQ(cause_of(end), "");
}

}  // namespace
}  // namespace tenon::cli
