#include "embed/context.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <thread>

namespace tenon::embed {
namespace {

namespace fs = std::filesystem;

// The folder of the file that holds this code, which is libtenon.so. "" if the system does not tell.
fs::path folder_of_library() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&folder_of_library), &info) == 0) return {};
  std::error_code failed;
  return fs::canonical(info.dli_fname, failed).parent_path();
}

// A library is one or two folders below its prefix: lib/, lib/x86_64-linux-gnu/.
Result<std::string> find_part(const std::vector<fs::path>& in_prefix, const std::string& what,
                              const std::string& option) {
  const fs::path folder = folder_of_library();
  std::string tried;
  for (const fs::path& prefix : {folder.parent_path(), folder.parent_path().parent_path()}) {
    for (const fs::path& part : in_prefix) {
      std::error_code ignored;
      if (fs::exists(prefix / part, ignored)) return (prefix / part).string();
      tried += " " + (prefix / part).string();
    }
  }
  return Error{"E001", "cannot find " + what, "tried:" + tried,
               "install tenon as a whole, or set tenon_options." + option, TENON_E_STATE};
}

RegistryConfig registry_config(const tenon_options& options, const std::shared_ptr<LogQueue>& log) {
  RegistryConfig config;
  for (uint32_t i = 0; i < options.num_plugin_directories; ++i) {
    config.directories.emplace_back(options.plugin_directories[i]);
  }
  config.log_level = options.log_level;
  if (options.log != nullptr) {
    config.log = [log](uint32_t level, std::string_view source, uint32_t line, std::string_view message) {
      log->push(level, source, line, message);
    };
  }
  return config;
}

std::string text_or_empty(const char* text) { return text == nullptr ? "" : text; }

}  // namespace

Context::Context(const tenon_options& options)
    : log_(std::make_shared<LogQueue>(options.log, options.log_user)),
      registry_(registry_config(options, log_)),
      threads_(options.threads),
      helper_(text_or_empty(options.helper)),
      vocabulary_(text_or_empty(options.vocabulary)) {}

int Context::threads(int ranks) const {
  if (threads_ > 0) return threads_;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / std::max(1, ranks));
}

Result<RecipeRequest> Context::request(const std::string& path, std::vector<std::string> overrides) {
  RecipeRequest out;
  out.path = path;
  out.overrides = std::move(overrides);
  out.helper = helper_;
  out.library = vocabulary_;
  if (path.ends_with(".json")) return out;
  if (helper_.empty()) {
    TENON_TRY(out.helper,
              find_part({"libexec/tenon/tenon-recipe", "bin/tenon-recipe"}, "the recipe helper", "helper"));
  }
  if (vocabulary_.empty()) {
    TENON_TRY(out.library, find_part({"share/tenon/scripts"}, "the recipes' vocabulary", "vocabulary"));
  }
  TENON_TRY(const Plugin* const frontend, registry_.load("frontend/lua"));
  out.plugin = frontend->path();
  out.id = frontend->id();
  return out;
}

}  // namespace tenon::embed
