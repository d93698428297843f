// From a recipe to the plugins that it names, loaded, their options checked.
#pragma once

#include "host/plugins/registry.h"
#include "run/plugin_set.h"

namespace tenon {

// Places of errors are JSON pointers into the recipe (see locate()). The registry must outlive the set.
// Errors: A001 to A007 (loading), R002 to R005 (options).
Result<PluginSet> load_plugins(PluginRegistry& registry, const Recipe& recipe);

}  // namespace tenon
