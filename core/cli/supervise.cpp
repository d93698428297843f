#include "cli/supervise.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>

#include "cli/death.h"

namespace tenon::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Blocked, so that they wait until they are asked for.
class Signals {
 public:
  Signals() {
    std::signal(SIGCHLD, SIG_DFL);  // whoever started us may ignore it: then no child could be waited for
    sigemptyset(&ours_);
    for (const int number : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&ours_, number);
    sigprocmask(SIG_BLOCK, &ours_, &before_);
  }
  ~Signals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  siginfo_t next() const {
    siginfo_t info{};
    while (sigwaitinfo(&ours_, &info) < 0) {
    }
    return info;
  }
  std::optional<siginfo_t> waiting() const {
    siginfo_t info{};
    const timespec now{};
    return sigtimedwait(&ours_, &info, &now) < 0 ? std::nullopt : std::optional(info);
  }

 private:
  sigset_t ours_{}, before_{};
};

// Whether a signal is meant to end all at once: the user has asked before.
class Impatience {
 public:
  bool hear(int signal) {
    const auto now = Clock::now();
    const bool again = !heard_.empty() && (signal == SIGINT || now - first_ >= std::chrono::seconds(1));
    if (heard_.empty()) first_ = now;
    heard_.insert(signal);
    return again;
  }
  bool heard(int signal) const { return heard_.contains(signal); }

 private:
  std::set<int> heard_;
  Clock::time_point first_;
};

[[noreturn]] void end_by(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  kill(getpid(), signal);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  _exit(128 + signal);
}

[[noreturn]] void be_child(const std::function<int()>& body, pid_t parent, trail::Shared& shared) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before
  shared.watch();
  const int code = body();
  trail::tell_end();
  std::exit(code);
}

// The child's end, as waitpid() tells it.
int watch(pid_t child, const Signals& signals, Impatience& user) {
  const auto hear = [&](const siginfo_t& info) {
    if (info.si_signo == SIGCHLD) return;
    if (user.hear(info.si_signo))
      kill(child, SIGKILL);
    else if (info.si_code != SI_KERNEL)  // a terminal tells the whole group
      kill(child, info.si_signo);
  };
  int status = 0;
  while (waitpid(child, &status, WNOHANG) != child) hear(signals.next());
  while (const auto late = signals.waiting()) {  // one that the child, but not we had seen
    if (late->si_signo != SIGCHLD) user.hear(late->si_signo);
  }
  return status;
}

// Ends that the user, or the reader of a pipe, meant: ours is the same.
bool is_meant(int signal, const Impatience& user) { return user.heard(signal) || signal == SIGPIPE; }

}  // namespace

int supervise(const std::function<int()>& body, const std::function<int(const Error&)>& tell) {
  auto shared = trail::Shared::create();
  if (!shared.ok()) return tell(shared.error());
  Impatience user;
  pid_t child = -1;
  int status = 0;
  {
    std::optional<Signals> signals(std::in_place);
    const pid_t self = getpid();
    child = fork();
    if (child == 0) {
      signals.reset();
      be_child(body, self, *shared);
    }
    if (child < 0)
      return tell(
          {"E011", fmt::format("cannot start a process: {}", std::strerror(errno)), "", "", TENON_E_IO});
    status = watch(child, *signals, user);
    if (WIFSIGNALED(status)) {
      if (is_meant(WTERMSIG(status), user)) end_by(WTERMSIG(status));
      for (const int signal : {SIGINT, SIGTERM}) {
        if (WTERMSIG(status) == SIGKILL && user.heard(signal)) end_by(signal);
      }
    }
  }
  if (const auto death = death_of(fmt::format("tenon (process {})", child), status, *shared))
    return tell(*death);
  return WEXITSTATUS(status);
}

}  // namespace tenon::cli
