// One child process, bounded in time and output. Waits for that child alone: the host's SIGCHLD handling and
// its other children are not touched.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"

namespace tenon {

struct ChildLimits {
  std::chrono::milliseconds wall{10'000};
  size_t output = size_t{64} << 20;    // bytes of standard output
  size_t messages = size_t{64} << 10;  // bytes of standard error that are kept
};

struct ChildEnd {
  enum class Cause { exited, signalled, unknown, too_slow, too_much };
  Cause cause = Cause::unknown;  // unknown: the host reaped the child before us
  int status = 0;                // exit status, or the signal
  std::string output, messages;
};

// Runs argv[0] (a path) with an empty environment, standard input empty, all signals at their defaults and no
// other descriptor; returns when it has ended and closed its outputs, killing it at a limit. Leaves no
// process behind. Fails with R017 only when the child cannot be started. Thread-safe.
Result<ChildEnd> run_child(const std::vector<std::string>& argv, const ChildLimits& limits);

}  // namespace tenon
