#include "host/plugins/registry.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "host/plugins/guard.h"
#include "host/plugins/library.h"
#include "host/plugins/process_state.h"
#include "tenon_sdk/suggest.hpp"

namespace tenon {
namespace {

namespace fs = std::filesystem;

// An initialised plugin and the registries that use it. A plugin keeps one host pointer, so the first
// registry's host serves all; it is kept until the last of them is gone.
struct InUse {
  std::shared_ptr<Host> host;
  std::vector<std::shared_ptr<Host>> users;
};

// A fact about the process like the loaded libraries themselves. Guarded by loading_lock(). Never
// destroyed, for a registry may outlive every static object.
std::map<const tenon_plugin*, InUse>& plugins_in_use() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static auto* const table = new std::map<const tenon_plugin*, InUse>();
  return *table;
}

// Needs loading_lock().
Status begin_use(const tenon_plugin* plugin, const std::shared_ptr<Host>& host, const std::string& path) {
  auto& table = plugins_in_use();
  if (const auto found = table.find(plugin); found != table.end()) {
    found->second.users.push_back(host);
    return {};
  }
  tenon_error error = empty_abi_error();
  tenon_code code = TENON_OK;
  {
    const ProcessStateGuard guard;
    const OwnMark mark(plugin->id, OwnCall::init);
    code = plugin->init(host->table(), &error);
    if (code > TENON_OK) code = refuse_code(&error, code);
  }
  if (code < 0) {
    Error failed = from_abi(code, error, path);
    failed.code = "A006";
    failed.cause = fmt::format("init of '{}' failed: {}", plugin->id, failed.cause);
    return failed;
  }
  table.emplace(plugin, InUse{host, {host}});
  return {};
}

// Needs loading_lock().
void end_use(const tenon_plugin* plugin, const std::shared_ptr<Host>& host) {
  auto& table = plugins_in_use();
  const auto found = table.find(plugin);
  auto& users = found->second.users;
  users.erase(std::find(users.begin(), users.end(), host));
  if (users.empty()) {
    const OwnMark mark(plugin->id, OwnCall::deinit);
    plugin->deinit();
    table.erase(found);
  } else if (found->second.host == host) {
    host->hand_over_log(users.front());
  }
}

// The file that holds this code: the executable or libtenon.so. "" if the system does not tell.
fs::path file_of_core() {
  Dl_info info{};
  link_map* map = nullptr;
  const auto* const address = reinterpret_cast<const void*>(&file_of_core);
  if (dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0) return {};
  // For the executable the name is what argv[0] said, which need not lead anywhere.
  const bool executable = map->l_name == nullptr || *map->l_name == '\0';
  std::error_code failed;
  return fs::canonical(executable ? "/proc/self/exe" : map->l_name, failed);
}

// Folders of libraries within a prefix, Debian's among them.
std::vector<std::string> library_folders() {
#if defined(__x86_64__)
  return {"lib", "lib/x86_64-linux-gnu", "lib64"};
#elif defined(__aarch64__)
  return {"lib", "lib/aarch64-linux-gnu", "lib64"};
#else
  return {"lib", "lib64"};
#endif
}

}  // namespace

std::vector<std::string> default_plugin_directories() {
  std::vector<std::string> folders;
  const auto add = [&folders](const fs::path& folder) {
    const std::string text = folder.lexically_normal().string();
    if (std::find(folders.begin(), folders.end(), text) == folders.end()) folders.push_back(text);
  };
  if (const fs::path core = file_of_core(); !core.empty()) {
    add(core.parent_path() / "tenon");
    for (const std::string& lib : library_folders()) add(core.parent_path().parent_path() / lib / "tenon");
  }
  for (const char* const prefix : {"/usr/local", "/usr"}) {
    for (const std::string& lib : library_folders()) add(fs::path(prefix) / lib / "tenon");
  }
  return folders;
}

Result<OptionValues> Plugin::read_options(const Json& given, const std::string& place) const {
  return tenon::read_options(options(), given, place, id());
}

Status Plugin::check(tenon_code code, const tenon_error& error, const char* call) const {
  if (code >= 0) return {};
  return from_abi(code, error, fmt::format("{}, {}", id(), call));
}

Plugin::Plugin(const tenon_plugin* table, std::string path)
    : table_(table), path_(std::move(path)), options_(declared_options(*table)) {}

Status Plugin::read_tables() {
  for (const InterfaceSpec* spec : all_interfaces()) {
    const void* const table = [&] {
      const OwnMark mark(id(), OwnCall::get_interface);
      return table_->get_interface(spec->id);
    }();
    if (table == nullptr) continue;
    TENON_TRY(const TableCopy copy, read_interface(*spec, table, abi_minor(), path_));
    TENON_TRY(tables_[spec], guarded(*spec, table, copy, id()));
  }
  return {};
}

Result<const void*> Plugin::find_interface(const InterfaceSpec& spec) const {
  if (const auto found = tables_.find(&spec); found != tables_.end()) return found->second;
  return Error{"A007", fmt::format("plugin '{}' does not implement {}", id(), spec.id), path_,
               "name a plugin of the right kind", TENON_E_UNSUPPORTED};
}

PluginRegistry::PluginRegistry(RegistryConfig config)
    : directories_(std::move(config.directories)),
      host_(std::make_shared<Host>(std::move(config.log), config.log_level)) {
  if (!config.default_directories) return;
  for (std::string& folder : default_plugin_directories()) {
    if (std::find(directories_.begin(), directories_.end(), folder) == directories_.end()) {
      directories_.push_back(std::move(folder));
    }
  }
}

PluginRegistry::~PluginRegistry() {
  const std::lock_guard loading(loading_lock());
  for (auto plugin = order_.rbegin(); plugin != order_.rend(); ++plugin) end_use((*plugin)->table_, host_);
}

Result<const Plugin*> PluginRegistry::load(const std::string& what) {
  const std::lock_guard mine(lock_);
  const std::lock_guard loading(loading_lock());
  return is_plugin_id(what) ? load_by_id(what) : load_by_path(what);
}

Result<const Plugin*> PluginRegistry::load_by_id(const std::string& id) {
  if (const auto found = plugins_.find(id); found != plugins_.end()) return found->second.get();
  std::vector<Error> tried;
  for (const std::string& folder : directories_) {
    const std::string path = (fs::path(folder) / library_name(id)).string();
    Result<const tenon_plugin*> table = open_library(path, id);
    if (!table.ok()) {
      tried.push_back(std::move(table).error());
      continue;
    }
    for (const Error& error : tried) {
      if (error.code == "A002") continue;
      host_->log(TENON_LOG_WARN, error.place, 0,
                 fmt::format("passed over {}: {}; using {}", error.place, error.cause, path));
    }
    return start(*table, path);
  }
  return not_loaded(id, tried);
}

Result<const Plugin*> PluginRegistry::load_by_path(const std::string& path) {
  std::error_code failed;
  // Absolute, because dlopen searches the system's folders for a bare name.
  const fs::path absolute = fs::absolute(path, failed);
  Result<const tenon_plugin*> table = open_library(failed ? path : absolute.string(), "");
  if (table.ok()) return start(*table, absolute.string());
  Error error = std::move(table).error();
  error.cause = fmt::format("plugin '{}' cannot be loaded: {}", path, error.cause);
  if (error.code == "A002" && error.fix.empty()) {
    error.fix = "give an id such as optimizer/adamw, or the path of a file";
  }
  return error;
}

Result<const Plugin*> PluginRegistry::start(const tenon_plugin* table, const std::string& path) {
  if (const auto found = plugins_.find(table->id); found != plugins_.end()) {
    if (found->second->table_ == table) return found->second.get();
    return Error{"A005",
                 fmt::format("plugin '{}' is loaded already, from {}", table->id, found->second->path()),
                 path, "name one of the two files", TENON_E_STATE};
  }
  TENON_CHECK(begin_use(table, host_, path));
  std::unique_ptr<Plugin> plugin(new Plugin(table, path));
  if (Status read = plugin->read_tables(); !read.ok()) {
    end_use(table, host_);
    Error error = std::move(read).error();
    error.cause = fmt::format("plugin '{}': {}", table->id, error.cause);
    return error;
  }
  order_.push_back(plugin.get());
  return (plugins_[table->id] = std::move(plugin)).get();
}

Error PluginRegistry::not_loaded(const std::string& id, const std::vector<Error>& tried) const {
  std::string paths;
  const Error* first = nullptr;  // what stopped a file that was there says more than that others are missing
  for (const Error& error : tried) {
    paths += fmt::format("\n    {}: {}", error.place, error.cause);
    if (first == nullptr && error.code != "A002") first = &error;
  }
  if (first != nullptr) {
    return Error{first->code, fmt::format("plugin '{}' cannot be loaded; tried:{}", id, paths), first->place,
                 first->fix, first->kind};
  }
  std::string fix = sdk::did_you_mean(id, ids_in_directories());
  if (fix.empty()) fix = "build or install it, or name its folder in TENON_PLUGIN_PATH";
  if (tried.empty()) paths = " no folder, for none was given";
  return Error{"A002", fmt::format("plugin '{}' not found; tried:{}", id, paths), "", fix, TENON_E_IO};
}

namespace {

// Names of the plugins' files in a folder, sorted; none when it cannot be read.
std::vector<std::string> plugin_files(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  fs::directory_iterator entry(folder, failed);
  for (; !failed && entry != fs::directory_iterator(); entry.increment(failed)) {
    std::string name = entry->path().filename().string();
    if (!id_of_library(name).empty()) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

PluginListing look_at(const PluginFile& file) {
  PluginListing listing;
  listing.id = file.id;
  listing.path = file.path;
  const std::lock_guard loading(loading_lock());
  Result<const tenon_plugin*> table = open_library(file.path, file.id);
  if (!table.ok()) {
    listing.error = std::move(table).error();
    return listing;
  }
  listing.version = (*table)->version;
  listing.doc = (*table)->doc;
  const Declarations options = declared_options(**table);
  if (!options.all().empty()) listing.options = options_markdown(options.all());
  return listing;
}

std::vector<std::string> PluginRegistry::ids_in_directories() const {
  std::vector<std::string> ids;
  for (const std::string& folder : directories_) {
    for (const std::string& name : plugin_files(folder)) ids.push_back(id_of_library(name));
  }
  return ids;
}

std::vector<PluginListing> PluginRegistry::list(
    const std::function<PluginListing(const PluginFile&)>& look) const {
  std::vector<PluginListing> listings;
  std::set<std::string> seen;
  for (const std::string& folder : directories_) {
    for (const std::string& name : plugin_files(folder)) {
      PluginListing listing = look({id_of_library(name), (fs::path(folder) / name).string()});
      if (!listing.error) listing.shadowed = !seen.insert(listing.id).second;
      listings.push_back(std::move(listing));
    }
  }
  return listings;
}

}  // namespace tenon
