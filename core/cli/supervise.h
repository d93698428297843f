// A process that calls plugins, and one that watches over it: what a plugin does to its process, the command
// survives and tells.
#pragma once

#include <functional>

#include "base/result.h"

namespace tenon::cli {

// Runs `body` in a child process, with this one's files and terminal, and returns its exit code. A child that
// dies, or that a plugin ends, is an error (death.h), which `tell` prints; it returns the exit code. To be
// called before the process has threads.
//
// SIGINT and SIGTERM to this process go to the child. A second SIGINT, or a SIGTERM a second or more after
// the first signal, ends both at once. The child never outlives this process.
int supervise(const std::function<int()>& body, const std::function<int(const Error&)>& tell);

}  // namespace tenon::cli
