// What tenon_open makes: the plugins, the log, and where the parts of an installation are.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "embed/log.h"
#include "host/plugins/registry.h"
#include "host/recipe/evaluate.h"
#include "tenon/embed.h"

namespace tenon::embed {

class Context {
 public:
  explicit Context(const tenon_options& options);

  LogQueue& log() { return *log_; }
  // For the end of tenon_close, when the context is gone.
  std::shared_ptr<LogQueue> shared_log() const { return log_; }
  PluginRegistry& registry() { return registry_; }
  // Of each rank, when `ranks` of them share the machine's processors.
  int threads(int ranks) const;
  // The request for a recipe file, its parts found. Errors: E001 (an incomplete installation), A00x.
  Result<RecipeRequest> request(const std::string& path, std::vector<std::string> overrides);

  std::atomic<int> open_runs{0};

 private:
  std::shared_ptr<LogQueue> log_;  // the registry's host keeps it too
  PluginRegistry registry_;
  int threads_;
  std::string helper_, vocabulary_;
};

}  // namespace tenon::embed
