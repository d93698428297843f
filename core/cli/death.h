// How a process that runs plugins ended, when it did not tell so itself.
#pragma once

#include <optional>
#include <string>

#include "base/trail.h"

namespace tenon::cli {

// Whether it ended as it had told (trail::tell_end()). `status`: as waitpid() gives it.
bool ended_as_told(int status, const trail::Shared& left);

// W002 when the process (`who`) did not: a signal killed it, or it ended by itself and had told nothing, or
// another code. Then a plugin ended it, whatever its exit code says. The place names the call that it was in.
std::optional<Error> death_of(const std::string& who, int status, const trail::Shared& left);

}  // namespace tenon::cli
