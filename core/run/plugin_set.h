// The plugins of a run as plain tables with their checked options: what core/host makes of a recipe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/options.h"
#include "graph/recipe.h"
#include "tenon/comm.h"
#include "tenon/data.h"
#include "tenon/draft/pass.h"
#include "tenon/kernels.h"
#include "tenon/optimizer.h"
#include "tenon/schedule.h"
#include "tenon/sink.h"

namespace tenon {

// `host` outlives all that the plugin makes.
template <class Table>
struct Plugged {
  std::string id, version;
  const Table* table = nullptr;
  OptionValues options;
  std::string pointer = {};  // of the options in the recipe
  const tenon_host* host = nullptr;
  uint32_t abi_minor = TENON_ABI_MINOR;  // that it was built for
};

// The config of an open(), but for what each kind has of its own. Borrows the options.
template <class Config>
Config config_of(const OptionValues& options, const tenon_host* host) {
  Config out{};
  out.struct_size = sizeof out;
  out.num_options = options.size();
  out.host = host;
  out.options = options.data();
  return out;
}
template <class Config, class Table>
Config config_of(const Plugged<Table>& plugin) {
  return config_of<Config>(plugin.options, plugin.host);
}

// Whose kernels run.
struct KernelPlugins {
  std::vector<Plugged<tenon_kernels>> plugins;           // 0: the base, which has the device's memory too
  std::map<std::string, size_t, std::less<>> overrides;  // kind -> which of them runs it; others: the base

  const Plugged<tenon_kernels>& base() const { return plugins.front(); }
  size_t index_of(std::string_view kind) const {
    const auto found = overrides.find(kind);
    return found == overrides.end() ? 0 : found->second;
  }
  const Plugged<tenon_kernels>& of(std::string_view kind) const { return plugins[index_of(kind)]; }
};

struct OptimizerUse {
  struct Group {
    OptionValues options;
    std::string pointer;  // of the options in the recipe
  };
  std::string id, version;
  const tenon_optimizer* table = nullptr;
  const tenon_host* host = nullptr;
  std::vector<Group> groups;  // 0: the common options; 1 + i: Recipe::groups[i]
};

// Shared by all virtual ranks of a process; read-only.
struct PluginSet {
  KernelPlugins kernels;
  Plugged<tenon_comm> comm;
  Plugged<tenon_data> data;
  OptimizerUse optimizer;
  std::vector<Plugged<tenon_pass>> passes;
  Plugged<tenon_schedule> schedule;  // table NULL: the recipe names none
  std::vector<Plugged<tenon_sink>> sinks;
};
// What makes a run what it is, a line each: "kernels/cpu 0.1.0". Sinks are rank 0's alone.
std::string names_of(const PluginSet& plugins);

}  // namespace tenon
