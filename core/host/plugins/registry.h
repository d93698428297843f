// Finding, loading and owning plugins. An explicit object: two registries in one process do not see
// each other, and may use the same plugin.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/result.h"
#include "host/plugins/host.h"
#include "host/plugins/interfaces.h"
#include "tenon/plugin.h"

namespace tenon {

// A plugin that is loaded and initialised. Immutable; lives as long as its registry. Thread-safe.
class Plugin {
 public:
  const char* id() const { return table_->id; }
  const char* version() const { return table_->version; }
  const char* doc() const { return table_->doc; }
  const std::string& path() const { return path_; }
  OptionDecls options() const { return options_.all(); }
  // The minor that it was built for.
  uint32_t abi_minor() const { return table_->abi_minor_built; }

  // See tenon::read_options; `place` is the JSON pointer of `given`.
  Result<OptionValues> read_options(const Json& given, const std::string& place) const;

  // The guarded table (guard.h) for T (tenon_comm, tenon_optimizer ...) as this core knows it, with every
  // mandatory slot filled. Error A007: the plugin has none.
  template <class T>
  Result<const T*> interface() const {
    TENON_TRY(const void* const table, find_interface(interface_spec<T>()));
    return static_cast<const T*>(table);
  }

  // The error of a call: `code` and `error` as the plugin returned them, `call` what was called. Success
  // for code >= 0. The place reads "optimizer/adamw, step".
  Status check(tenon_code code, const tenon_error& error, const char* call) const;

 private:
  friend class PluginRegistry;
  Plugin(const tenon_plugin* table, std::string path);
  // Asks for all tables and checks them. Errors: those of read_interface().
  Status read_tables();
  Result<const void*> find_interface(const InterfaceSpec& spec) const;

  const tenon_plugin* table_;
  std::string path_;
  Declarations options_;
  std::map<const InterfaceSpec*, const void*> tables_;  // guarded
};

struct RegistryConfig {
  // Searched first, in this order. The library reads no environment: the command fills it from
  // TENON_PLUGIN_PATH.
  std::vector<std::string> directories;
  // Then the folders next to the core, then the system's: default_plugin_directories().
  bool default_directories = true;
  LogFunction log = {};
  uint32_t log_level = TENON_LOG_WARN;
};

// A file in a folder that is searched.
struct PluginFile {
  std::string id;  // from its name
  std::string path;
};

// One line of `tenon plugins`.
struct PluginListing {
  std::string id;
  std::string path;
  std::string version;              // "" where `error` is set
  std::string doc;                  //
  std::string options;              // a table in Markdown; "" where there are none
  bool shadowed = false;            // an earlier folder has a plugin of this id that can be loaded
  std::optional<Error> error = {};  // why it cannot be loaded
};

// Opens the file, in this process, and initialises nothing.
PluginListing look_at(const PluginFile& file);

class PluginRegistry {
 public:
  explicit PluginRegistry(RegistryConfig config = {});
  // Ends its plugins, the last one first. What they made must have been closed.
  ~PluginRegistry();
  PluginRegistry(const PluginRegistry&) = delete;
  PluginRegistry& operator=(const PluginRegistry&) = delete;

  // `what` is an id ("optimizer/adamw"), searched for in every folder, or the path of a file (whatever
  // is not an id). Loading it again gives the same object. A file that is there but cannot be loaded is
  // passed over with a warning in the log if a later folder has one that can; otherwise the error tells
  // every path tried and why it failed. Thread-safe.
  // Errors: A001 to A006 (library.h; A002 also: found nowhere; A006: init failed).
  Result<const Plugin*> load(const std::string& what);

  // All plugins in the search folders, sorted by folder and id: what `look` says of each file. What runs
  // while a file is opened can end the process: the command looks from another one (cli/probe.h).
  std::vector<PluginListing> list(
      const std::function<PluginListing(const PluginFile&)>& look = look_at) const;

  const std::vector<std::string>& directories() const { return directories_; }
  const Host& host() const { return *host_; }

 private:
  Result<const Plugin*> load_by_id(const std::string& id);
  Result<const Plugin*> load_by_path(const std::string& path);
  Result<const Plugin*> start(const tenon_plugin* table, const std::string& path);
  Error not_loaded(const std::string& id, const std::vector<Error>& tried) const;
  std::vector<std::string> ids_in_directories() const;

  std::vector<std::string> directories_;
  std::shared_ptr<Host> host_;
  std::mutex lock_;
  std::map<std::string, std::unique_ptr<Plugin>> plugins_;  // by id
  std::vector<const Plugin*> order_;                        // of loading
};

// Where plugins are looked for besides the embedder's folders: `tenon` beside the file that holds this
// code, `lib/tenon` beside its folder (build trees and installed ones), then /usr/local and /usr.
std::vector<std::string> default_plugin_directories();

}  // namespace tenon
