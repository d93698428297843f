// Where things are: the command's own folder, the helper, the vocabulary, runs. The one place besides
// main() that reads the environment.
#pragma once

#include <string>
#include <vector>

#include "host/plugins/registry.h"

namespace tenon::cli {

struct Places {
  std::string command;      // this executable
  std::string helper;       // tenon-recipe
  std::string library;      // folder of the recipes' vocabulary
  RegistryConfig registry;  // TENON_PLUGIN_PATH filled in
};

// Error E001 when the installation is incomplete.
Result<Places> find_places();

}  // namespace tenon::cli
