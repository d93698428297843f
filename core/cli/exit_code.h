// Exit codes of the command: docs/reference/errors.md.
#pragma once

#include "base/result.h"

namespace tenon::cli {

constexpr int kExitRecipe = 2, kExitEnvironment = 3, kExitStopped = 75;

// By the family of the error's code.
int exit_code_of(const Error& error);

}  // namespace tenon::cli
