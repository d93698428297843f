// How a process that runs plugins ended, when it did not tell so itself.
#pragma once

#include <optional>
#include <string>

#include "base/trail.h"

namespace tenon::cli {

// W002 when the process (`who`) died by a signal, or ended by itself without having told so
// (trail::tell_end()): then a plugin ended it, whatever its exit code says. The place names the call that it
// was in. `status`: as waitpid() gives it.
std::optional<Error> death_of(const std::string& who, int status, const trail::Shared& left);

}  // namespace tenon::cli
