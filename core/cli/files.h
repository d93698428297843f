// Files that a command writes for its user.
#pragma once

#include <string>

#include "base/result.h"

namespace tenon::cli {

// Error R024.
Status write_file(const std::string& path, const std::string& text);

}  // namespace tenon::cli
