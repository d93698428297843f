#include "run/plugin_set.h"

namespace tenon {

std::string names_of(const PluginSet& plugins) {
  std::string out;
  const auto add = [&out](const auto& plugin) { out += plugin.id + ' ' + plugin.version + '\n'; };
  for (const auto& kernels : plugins.kernels.plugins) add(kernels);
  add(plugins.comm);
  add(plugins.data);
  add(plugins.optimizer);
  for (const auto& pass : plugins.passes) add(pass);
  add(plugins.schedule);
  return out;
}

}  // namespace tenon
