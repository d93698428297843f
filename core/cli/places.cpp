#include "cli/places.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>

namespace tenon::cli {
namespace fs = std::filesystem;

namespace {

// First of the candidates that exists: next to the build tree's binaries, then where it is installed.
Result<std::string> first_existing(const std::vector<fs::path>& candidates, const std::string& what) {
  std::string tried;
  for (const fs::path& path : candidates) {
    std::error_code ignored;
    if (fs::exists(path, ignored)) return path.string();
    tried += " " + path.string();
  }
  return Error{"E001", "cannot find " + what, "tried:" + tried, "build or install tenon as a whole",
               TENON_E_STATE};
}

std::vector<std::string> split_path(const char* value) {
  std::vector<std::string> out;
  std::stringstream stream(value == nullptr ? "" : value);
  std::string folder;
  while (std::getline(stream, folder, ':')) {
    if (!folder.empty()) out.push_back(folder);
  }
  return out;
}

}  // namespace

Result<Places> find_places() {
  Places out;
  std::error_code error;
  out.command = fs::read_symlink("/proc/self/exe", error).string();
  const fs::path bin = fs::path(out.command).parent_path(), prefix = bin.parent_path();
  TENON_TRY(out.helper, first_existing({bin / "tenon-recipe", prefix / "libexec/tenon/tenon-recipe"},
                                       "the recipe helper"));
  TENON_TRY(out.library, first_existing({prefix / "share/tenon/scripts"}, "the recipes' vocabulary"));
  out.registry.directories = split_path(std::getenv("TENON_PLUGIN_PATH"));
  out.registry.log = [](uint32_t level, std::string_view, uint32_t, std::string_view message) {
    std::cerr << (level == TENON_LOG_ERROR  ? "error: "
                  : level == TENON_LOG_WARN ? "warning: "
                                            : "")
              << message << '\n';
  };
  return out;
}

}  // namespace tenon::cli
