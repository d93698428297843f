#include "cli/supervise.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <set>

#include "cli/death.h"
#include "cli/ending.h"

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

[[noreturn]] void be_child(const std::function<int()>& body, pid_t parent, trail::Shared& shared) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before
  shared.watch();
  ignore_closed_pipes();
  end_process(body());
}

struct End {
  int status = 0;             // as waitpid() gives it
  bool killed_by_us = false;  // SIGKILL, for the user had asked again
};

End watch(pid_t child, const Signals& signals, Impatience& user) {
  End end;
  const auto hear = [&](const siginfo_t& info) {
    if (info.si_signo == SIGCHLD) return;
    if (user.hear(info.si_signo))
      kill(child, SIGKILL), end.killed_by_us = true;
    else if (info.si_code != SI_KERNEL)  // a terminal tells the whole group
      kill(child, info.si_signo);
  };
  while (waitpid(child, &end.status, WNOHANG) != child) hear(signals.next());
  while (const auto late = signals.waiting()) {  // one that the child, but not we had seen
    if (late->si_signo != SIGCHLD) user.hear(late->si_signo);
  }
  return end;
}

// The signal that ended the child as the user, or the child itself, meant: by it this process ends too.
std::optional<int> meant_signal(const End& end, const Impatience& user, const trail::Shared& left) {
  if (!WIFSIGNALED(end.status)) return std::nullopt;
  const int signal = WTERMSIG(end.status);
  if (signal == SIGKILL && end.killed_by_us) return user.heard(SIGINT) ? SIGINT : SIGTERM;
  if (user.heard(signal) || ended_as_told(end.status, left)) return signal;
  return std::nullopt;
}

}  // namespace

int supervise(const std::function<int()>& body, const std::function<int(const Error&)>& tell) {
  auto shared = trail::Shared::create();
  if (!shared.ok()) return tell(shared.error());
  Impatience user;
  pid_t child = -1;
  End end;
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
    end = watch(child, *signals, user);
    if (const auto signal = meant_signal(end, user, *shared)) end_by(*signal);
  }
  if (const auto death = death_of(fmt::format("tenon (process {})", child), end.status, *shared))
    return tell(*death);
  return WEXITSTATUS(end.status);
}

}  // namespace tenon::cli
