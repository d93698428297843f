// tenon_sdk/plugin.hpp - writing a plugin in C++20. Header-only.
// Every slot of a table is wrapped by guard(), so that no exception crosses the C ABI.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/plugin.h"
#include "tenon_sdk/options.hpp"

namespace tenon::sdk {

// Thrown inside a plugin, turned into a tenon_error at the border.
class Failure : public std::runtime_error {
 public:
  Failure(tenon_code code, const std::string& message, const char* vendor = "", int64_t vendor_code = 0)
      : std::runtime_error(message), code_(code), vendor_(vendor), vendor_code_(vendor_code) {}
  tenon_code code() const { return code_; }
  const char* vendor() const { return vendor_; }
  int64_t vendor_code() const { return vendor_code_; }

 private:
  tenon_code code_;
  const char* vendor_;
  int64_t vendor_code_;
};

inline tenon_code fill_error(tenon_error* error, tenon_code code, const char* message,
                             const char* vendor = "", int64_t vendor_code = 0) {
  tenon_error mine{};
  mine.struct_size = sizeof mine;
  mine.code = code;
  mine.vendor_code = vendor_code;
  std::snprintf(mine.vendor, sizeof mine.vendor, "%s", vendor);
  std::snprintf(mine.message, sizeof mine.message, "%s", message);
  tenon_fill(error, &mine);
  return code;
}

// Runs body() and returns its tenon_code (TENON_OK if it returns void).
template <class Body>
tenon_code guard(tenon_error* error, Body&& body) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return TENON_OK;
    } else {
      return body();
    }
  } catch (const Failure& f) {
    return fill_error(error, f.code(), f.what(), f.vendor(), f.vendor_code());
  } catch (const std::bad_alloc&) {
    return fill_error(error, TENON_E_MEMORY, "out of memory");
  } catch (const std::exception& e) {
    return fill_error(error, TENON_E_INTERNAL, e.what());
  } catch (...) {
    return fill_error(error, TENON_E_INTERNAL, "unknown exception");
  }
}

// What the host passed, as large as this plugin knows it: what an older host does not say is zero. `least` is
// how much the first version had (TENON_END of its last field): a struct that is smaller is no host's.
template <class T>
T read(const T* given, size_t least) {
  if (given == nullptr || given->struct_size < least) {
    throw Failure(TENON_E_VERSION, "the host passes a struct of " +
                                       std::to_string(given == nullptr ? 0 : given->struct_size) +
                                       " bytes, of which the first version had " + std::to_string(least));
  }
  T mine{};
  mine.struct_size = sizeof mine;
  tenon_fill(&mine, given);
  return mine;
}

// A table of the host by id, or NULL: there is none, or it lacks what the last slot of its first version is.
template <class T>
const T* host_table(const tenon_host* host, const char* id, size_t least) {
  if (host == nullptr || !TENON_FN(host, tenon_host, get_interface)) return nullptr;
  const auto* const table = static_cast<const T*>(host->get_interface(host, id));
  return table == nullptr || table->struct_size < least ? nullptr : table;
}

// The threads of the host, or NULL, with which parallel_for() below runs the parts in order.
inline const tenon_parallel* threads_of(const tenon_host* host) {
  return host_table<tenon_parallel>(host, TENON_HOST_PARALLEL, TENON_END(tenon_parallel, num_threads));
}

// Options and attributes by key. The host has checked them: a missing key is a bug, and says so.
class Options {
 public:
  Options(const tenon_option* options, uint32_t count) : options_(options), count_(count) {}
  // Of any config of an open().
  template <class Config>
  explicit Options(const Config& config) : Options(config.options, config.num_options) {}
  const tenon_option* find(std::string_view key) const {
    for (uint32_t i = 0; i < count_; ++i) {
      if (key == options_[i].key) return &options_[i];
    }
    return nullptr;
  }
  int64_t integer(std::string_view key) const { return require(key).i; }
  bool boolean(std::string_view key) const { return require(key).i != 0; }
  double number(std::string_view key) const { return require(key).f; }
  std::string string(std::string_view key) const { return require(key).s; }
  std::vector<std::string> strings(std::string_view key) const {
    const tenon_option& found = require(key);
    return {found.list, found.list + found.count};
  }

 private:
  const tenon_option& require(std::string_view key) const {
    const tenon_option* found = find(key);
    if (found == nullptr) throw Failure(TENON_E_ARGUMENT, "missing option '" + std::string(key) + "'");
    return *found;
  }
  const tenon_option* options_;
  uint32_t count_;
};

// The name of an interface as a template argument.
template <size_t kSize>
struct InterfaceName {
  constexpr InterfaceName(const char (&name)[kSize]) { std::copy_n(name, kSize, text); }
  char text[kSize];
};

// Says yes to everything: for plugins that need nothing of the host.
inline tenon_code start(const tenon_host*, tenon_error*) noexcept { return TENON_OK; }
inline void stop() noexcept {}

// What a plugin with one interface exports:
//
//     extern "C" const tenon_plugin tenon_plugin_v0 =
//         plugin_with<TENON_SINK, kTable>("sink/mine", "0.1.0", "One line of text per record", kOptions);
//
// `kTable` and the options are of static storage. `required`: the minor of the oldest host that it can do
// with, which is a newer one only where it calls or fills what that one appended.
template <InterfaceName kInterface, const auto& kTable, auto* kInit = start, auto* kDeinit = stop>
constexpr tenon_plugin plugin_with(const char* id, const char* version, const char* doc,
                                   std::span<const tenon_option_decl* const> options = {},
                                   uint32_t required = TENON_ABI_OLDEST_MINOR) {
  return {sizeof(tenon_plugin),
          TENON_ABI_MAJOR,
          TENON_ABI_MINOR,
          required,
          id,
          version,
          doc,
          options.data(),
          static_cast<uint32_t>(options.size()),
          kInit,
          kDeinit,
          [](const char* interface) noexcept -> const void* {
            return std::strcmp(interface, kInterface.text) == 0 ? &kTable : nullptr;
          }};
}

// parallel_for over parts with a lambda.
template <class Body>
void parallel_for(const tenon_parallel* pool, int64_t parts, Body&& body) {
  if (pool == nullptr || parts <= 1) {
    for (int64_t i = 0; i < parts; ++i) body(i);
    return;
  }
  pool->parallel_for(
      pool, parts, [](void* arg, int64_t part) { (*static_cast<std::remove_reference_t<Body>*>(arg))(part); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace tenon::sdk
