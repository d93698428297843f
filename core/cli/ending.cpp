#include "cli/ending.h"

#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "base/trail.h"

// Of a leak sanitizer, which looks when a program exits; NULL without one.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" [[gnu::weak]] void __lsan_do_leak_check();

namespace tenon::cli {
namespace {

bool is_unread(int fd) {
  pollfd entry{fd, POLLOUT, 0};
  return poll(&entry, 1, 0) > 0 && (entry.revents & (POLLERR | POLLHUP)) != 0;
}

}  // namespace

void ignore_closed_pipes() { std::signal(SIGPIPE, SIG_IGN); }

void flush_output() {
  std::fflush(stdout);
  if (std::ferror(stdout) != 0 && is_unread(STDOUT_FILENO)) end_by(SIGPIPE);
}

Status check_output() {
  flush_output();
  if (std::ferror(stdout) == 0) return {};
  return Error{"E011", "not all of the output could be written", "", "room where standard output goes",
               TENON_E_IO};
}

void end_process(int code) {
  flush_output();
  std::fflush(nullptr);  // files that plugins left open
  if (__lsan_do_leak_check != nullptr) __lsan_do_leak_check();
  trail::tell_end(code);
  _exit(code);
}

void end_by(int signal) {
  trail::tell_end(128 + signal);
  std::signal(signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  kill(getpid(), signal);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  _exit(128 + signal);
}

}  // namespace tenon::cli
