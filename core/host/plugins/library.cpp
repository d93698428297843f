#include "host/plugins/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/struct_size.h"
#include "base/text.h"
#include "host/plugins/guard.h"
#include "host/plugins/process_state.h"

namespace tenon {
namespace {

constexpr std::string_view kPrefix = "libtenon-", kSuffix = ".so";
constexpr int kMajorsToLookFor = 9;

std::string symbol_of(int major) { return fmt::format("tenon_plugin_v{}", major); }

bool is_word(std::string_view text, bool dash) {
  if (text.empty() || text.front() == '-') return false;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    if (!letter && !(dash && c == '-')) return false;
  }
  return true;
}

constexpr size_t kMostTextBytes = 4096;  // of an id, a version, a line of documentation

Error version_error(std::string cause, const std::string& path) {
  return Error{"A001", std::move(cause), path, "build the plugin with the headers of this tenon",
               TENON_E_VERSION};
}

Error unfit(std::string cause, const std::string& path) {
  return Error{"A005", std::move(cause), path, "correct the plugin's tenon_plugin", TENON_E_VERSION};
}

// What usually helps against what the system's loader says.
std::string loader_hint(const std::string& text) {
  const auto says = [&text](const char* words) { return text.find(words) != std::string::npos; };
  if (says("undefined symbol"))
    return "link the plugin with all that it uses (tenon_add_plugin passes -z defs)";
  if (says("invalid ELF header") || says("file too short") || says("wrong ELF class")) {
    return "the file is not a shared library for this machine";
  }
  if (says("cannot open shared object file"))
    return "install the library that is missing, or put it where ld.so looks";
  return "";
}

Result<void*> open_file(const std::string& path) {
  if (path.find('\0') != std::string::npos) {  // which the system would take for the path's end
    return Error{"A002", "no file's name has a zero byte", path.substr(0, path.find('\0')), "", TENON_E_IO};
  }
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    const char* cause = errno == ENOENT ? "no such file" : std::strerror(errno);
    return Error{"A002", cause, path, "", TENON_E_IO};
  }
  if (!S_ISREG(info.st_mode)) return Error{"A003", "not a regular file", path, "", TENON_E_IO};
  const ProcessStateGuard guard;
  const OwnMark mark(path, OwnCall::load);
  // Not lazily: a missing symbol must be an error here rather than the end of the process later.
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* const said = dlerror();
    const std::string text = said == nullptr ? "dlopen failed" : said;
    return Error{"A003", text, path, loader_hint(text), TENON_E_IO};
  }
  return handle;
}

// The object that an address lies in must be the very one that was opened: dlsym also searches what
// that links to.
bool lies_in(void* handle, const void* address) {
  link_map* opened = nullptr;
  link_map* owner = nullptr;
  Dl_info info{};
  return dlinfo(handle, RTLD_DI_LINKMAP, &opened) == 0 &&
         dladdr1(address, &info, reinterpret_cast<void**>(&owner), RTLD_DL_LINKMAP) != 0 && opened == owner;
}

Error no_symbol(void* handle, const std::string& path) {
  std::string found;
  for (int major = 0; major <= kMajorsToLookFor; ++major) {
    const std::string name = symbol_of(major);
    const void* const symbol = dlsym(handle, name.c_str());
    if (major != static_cast<int>(TENON_ABI_MAJOR) && symbol != nullptr && lies_in(handle, symbol)) {
      found += (found.empty() ? "" : ", ") + name;
    }
  }
  const std::string wanted = symbol_of(TENON_ABI_MAJOR);
  if (found.empty()) {
    return Error{"A004", fmt::format("no {}: not a plugin, or one of another major", wanted), path, "",
                 TENON_E_VERSION};
  }
  return version_error(fmt::format("no {}, but {}: a plugin of another major (this tenon has ABI {}.{})",
                                   wanted, found, TENON_ABI_MAJOR, TENON_ABI_MINOR),
                       path);
}

Status check_version(const tenon_plugin& plugin, const std::string& path) {
  const uint32_t oldest = TENON_ABI_OLDEST_MINOR;
  const bool fits = plugin.abi_major == TENON_ABI_MAJOR && plugin.abi_minor_built >= oldest &&
                    plugin.abi_minor_required <= TENON_ABI_MINOR;
  if (fits) return {};
  const std::string built = fmt::format("{}.{}", plugin.abi_major, plugin.abi_minor_built);
  const std::string needs = fmt::format("{}.{}", plugin.abi_major, plugin.abi_minor_required);
  return version_error(
      fmt::format(
          "the plugin needs ABI {} (built with {}), this tenon has {}.{} and takes what was built with "
          "{}.{} or newer",
          needs, built, TENON_ABI_MAJOR, TENON_ABI_MINOR, TENON_ABI_MAJOR, oldest),
      path);
}

// The first field that must be there and is not, in words; "" if none is missing.
std::string missing_field(const tenon_plugin& plugin) {
  const auto is = [&plugin](const char* name, size_t end, bool filled) {
    if (end > plugin.struct_size)
      return fmt::format("slot '{}' of tenon_plugin is missing: struct_size {} ends before it", name,
                         plugin.struct_size);
    return filled ? "" : fmt::format("slot '{}' of tenon_plugin is NULL", name);
  };
#define FIELD(name)                                                                                       \
  if (std::string what = is(#name, TENON_END(tenon_plugin, name), TENON_FN(&plugin, tenon_plugin, name)); \
      !what.empty())                                                                                      \
  return what
  FIELD(id);
  FIELD(version);
  FIELD(doc);
  const size_t end = TENON_END(tenon_plugin, num_options);
  if (end > plugin.struct_size || plugin.num_options > 0) {
    const bool there = end <= plugin.struct_size && plugin.options != nullptr;
    if (std::string what = is("options", end, there); !what.empty()) return what;
  }
  FIELD(init);
  FIELD(deinit);
  FIELD(get_interface);
#undef FIELD
  return "";
}

}  // namespace

// Function-local, so that it exists before the first use from any constructor.
std::mutex& loading_lock() {
  static std::mutex lock;
  return lock;
}

bool is_plugin_id(std::string_view text) {
  const size_t slash = text.find('/');
  return slash != std::string_view::npos && is_word(text.substr(0, slash), false) &&
         is_word(text.substr(slash + 1), true);
}

std::string library_name(const std::string& id) {
  std::string name = id;
  name[name.find('/')] = '-';
  return std::string(kPrefix) + name + std::string(kSuffix);
}

std::string id_of_library(const std::string& file_name) {
  const std::string_view view = file_name;
  if (!view.starts_with(kPrefix) || !view.ends_with(kSuffix)) return "";
  if (view.size() <= kPrefix.size() + kSuffix.size()) return "";
  std::string id(view.substr(kPrefix.size(), view.size() - kPrefix.size() - kSuffix.size()));
  const size_t dash = id.find('-');
  if (dash == std::string::npos) return "";
  id[dash] = '/';
  return is_plugin_id(id) ? id : "";
}

Declarations declared_options(const tenon_plugin& plugin) {
  return Declarations({plugin.options, plugin.num_options});
}

Status check_plugin(const tenon_plugin& plugin, const std::string& path, const std::string& id) {
  if (!TENON_HAS(&plugin, tenon_plugin, abi_minor_required)) {
    return unfit(fmt::format("struct_size {} leaves no room for a version", plugin.struct_size), path);
  }
  if (plugin.abi_minor_required > plugin.abi_minor_built) {
    return unfit(fmt::format("abi_minor_required {} is above abi_minor_built {}", plugin.abi_minor_required,
                             plugin.abi_minor_built),
                 path);
  }
  TENON_CHECK(check_version(plugin, path));
  if (!is_struct_size(plugin.struct_size))
    return unfit(fmt::format("struct_size {} ends inside a member", plugin.struct_size), path);
  if (std::string what = missing_field(plugin); !what.empty()) return unfit(std::move(what), path);
  for (const auto& [name, text] :
       {std::pair{"id", plugin.id}, {"version", plugin.version}, {"doc", plugin.doc}}) {
    if (!is_text(text, kMostTextBytes))
      return unfit(fmt::format("'{}' of tenon_plugin is no text: not UTF-8, or without an end", name), path);
  }
  if (!id.empty() && id != plugin.id) {
    return unfit(fmt::format("the file holds plugin '{}', not '{}'", plugin.id, id), path);
  }
  if (!is_plugin_id(plugin.id)) return unfit(fmt::format("'{}' is not a plugin id", plugin.id), path);
  return check_declarations({plugin.options, plugin.num_options}, path);
}

Result<const tenon_plugin*> open_library(const std::string& path, const std::string& id) {
  TENON_TRY(void* const handle, open_file(path));
  const void* const symbol = dlsym(handle, symbol_of(TENON_ABI_MAJOR).c_str());
  if (symbol == nullptr || !lies_in(handle, symbol)) return no_symbol(handle, path);
  const auto* const plugin = static_cast<const tenon_plugin*>(symbol);
  TENON_CHECK(check_plugin(*plugin, path, id));
  return plugin;
}

}  // namespace tenon
