// Foreign code that is loaded must not change the process that embeds us: what it changed is put back.
#pragma once

#include <fenv.h>
#include <signal.h>

#include <array>

namespace tenon {

// Saves the dispositions of all signals and the calling thread's floating-point environment (rounding,
// flush-to-zero: a library linked with -ffast-math sets it in a constructor), and puts them back when it
// ends. Dispositions belong to the process: a handler that another thread installs meanwhile is lost, so
// hold it briefly, around dlopen, init and the opening of a transport (libucs installs SIGSEGV and four
// more on load).
class ProcessStateGuard {
 public:
  ProcessStateGuard();
  ~ProcessStateGuard();
  ProcessStateGuard(const ProcessStateGuard&) = delete;
  ProcessStateGuard& operator=(const ProcessStateGuard&) = delete;

 private:
  static constexpr int kNumSignals = 64;
  struct Saved {
    struct sigaction action;
    bool known;  // SIGKILL, SIGSTOP and libc's own two cannot be set, or not even read
  };
  std::array<Saved, kNumSignals + 1> signals_;
  fenv_t float_environment_;
};

}  // namespace tenon
