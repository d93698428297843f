#include "host/resolve.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace tenon {
namespace {

// "/kernels/options" -> "/kernels/plugin": where the plugin's name stands.
std::string name_pointer(const PluginUse& use) {
  return use.pointer.substr(0, use.pointer.rfind('/')) + "/plugin";
}

Result<const Plugin*> load(PluginRegistry& registry, const PluginUse& use) {
  auto plugin = registry.load(use.id);
  if (plugin.ok()) return plugin;
  Error error = std::move(plugin).error();
  error.place = name_pointer(use);
  return error;
}

template <class Table>
Result<const Table*> table_of(const Plugin& plugin, const PluginUse& use) {
  auto table = plugin.interface<Table>();
  if (table.ok()) return table;
  Error error = std::move(table).error();
  error.place = name_pointer(use);
  return error;
}

Result<OptionValues> options_of(const Plugin& plugin, const std::string& options,
                                const std::string& pointer) {
  TENON_TRY(const Json given, parse_json(options, pointer));
  return plugin.read_options(given, pointer);
}

template <class Table>
Result<Plugged<Table>> plug(PluginRegistry& registry, const PluginUse& use) {
  TENON_TRY(const Plugin* plugin, load(registry, use));
  Plugged<Table> out;
  out.id = plugin->id();
  out.version = plugin->version();
  TENON_TRY(out.table, table_of<Table>(*plugin, use));
  TENON_TRY(out.options, options_of(*plugin, use.options, use.pointer));
  out.pointer = use.pointer;
  out.host = registry.host().table();
  out.abi_minor = plugin->abi_minor();
  return out;
}

template <class Table>
Result<std::vector<Plugged<Table>>> plug_all(PluginRegistry& registry, const std::vector<PluginUse>& uses) {
  std::vector<Plugged<Table>> out;
  for (const PluginUse& use : uses) {
    TENON_TRY(auto plugged, plug<Table>(registry, use));
    out.push_back(std::move(plugged));
  }
  return out;
}

Result<OptimizerUse> plug_optimizer(PluginRegistry& registry, const Recipe& recipe) {
  TENON_TRY(const Plugin* plugin, load(registry, recipe.optimizer));
  OptimizerUse out;
  out.id = plugin->id();
  out.version = plugin->version();
  TENON_TRY(out.table, table_of<tenon_optimizer>(*plugin, recipe.optimizer));
  out.host = registry.host().table();
  TENON_TRY(auto common, options_of(*plugin, recipe.optimizer.options, recipe.optimizer.pointer));
  out.groups.push_back({std::move(common), recipe.optimizer.pointer});
  for (const OptimizerGroup& group : recipe.groups) {
    TENON_TRY(auto options, options_of(*plugin, group.options, group.pointer));
    out.groups.push_back({std::move(options), group.pointer});
  }
  return out;
}

// The base, then one of each plugin with options of its own, however many kinds name it.
Result<KernelPlugins> plug_kernels(PluginRegistry& registry, const KernelsUse& use) {
  KernelPlugins out;
  TENON_TRY(auto base, plug<tenon_kernels>(registry, use.base));
  out.plugins.push_back(std::move(base));
  std::map<std::pair<std::string, std::string>, size_t> known;
  for (const auto& [kind, other] : use.overrides) {
    const auto [at, fresh] = known.try_emplace({other.id, other.options}, out.plugins.size());
    if (fresh) {
      TENON_TRY(auto plugged, plug<tenon_kernels>(registry, other));
      out.plugins.push_back(std::move(plugged));
    }
    out.overrides.emplace(kind, at->second);
  }
  return out;
}

Error other_device(const std::string& id, uint32_t type, const PluginUse& use) {
  return Error{"A005",
               fmt::format("{} works on device type {}, and this run on the CPU (device type {})", id, type,
                           static_cast<uint32_t>(kDLCPU)),
               name_pointer(use), "name a plugin for the CPU", TENON_E_UNSUPPORTED};
}

// All that a run computes lies in the memory of one type of device, which is the CPU's.
Status check_devices(const PluginSet& plugins, const Recipe& recipe) {
  const auto check = [](const auto& plugged, const PluginUse& use) {
    return plugged.table->device_type == uint32_t{kDLCPU}
               ? Status{}
               : other_device(plugged.id, plugged.table->device_type, use);
  };
  TENON_CHECK(check(plugins.kernels.base(), recipe.kernels.base));
  for (const auto& [kind, use] : recipe.kernels.overrides) TENON_CHECK(check(plugins.kernels.of(kind), use));
  return check(plugins.optimizer, recipe.optimizer);
}

}  // namespace

Result<PluginSet> load_plugins(PluginRegistry& registry, const Recipe& recipe) {
  PluginSet out;
  TENON_TRY(out.kernels, plug_kernels(registry, recipe.kernels));
  TENON_TRY(out.comm, plug<tenon_comm>(registry, recipe.comm));
  TENON_TRY(out.data, plug<tenon_data>(registry, recipe.data));
  TENON_TRY(out.optimizer, plug_optimizer(registry, recipe));
  TENON_TRY(out.passes, plug_all<tenon_pass>(registry, recipe.strategies));
  if (!recipe.schedule.id.empty()) {
    TENON_TRY(out.schedule, plug<tenon_schedule>(registry, recipe.schedule));
  }
  TENON_TRY(out.sinks, plug_all<tenon_sink>(registry, recipe.sinks));
  TENON_CHECK(check_devices(out, recipe));
  return out;
}

}  // namespace tenon
