// A small host for the tests of one plugin: loads the built library, calls init, offers the services that a
// test asks for, and makes options from the plugin's own declarations. Failures are std::runtime_error.
#pragma once

#include <dlfcn.h>
#include <stdlib.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tenon/plugin.h"

namespace tenon::test {

// Root table with log, parallel and memory. Must outlive the plugins that were given it.
class MockHost {
 public:
  explicit MockHost(int threads = 1) : threads_(threads) {}
  MockHost(const MockHost&) = delete;
  MockHost& operator=(const MockHost&) = delete;
  const tenon_host* table() const { return &host_; }
  void set_threads(int threads) { threads_ = threads; }
  // Without it get_interface("tenon.host.parallel/1") gives NULL.
  void set_parallel_offered(bool offered) { parallel_offered_ = offered; }
  int64_t parts_run() const { return parts_run_; }
  int64_t live_allocations() const { return live_allocations_; }
  std::vector<std::string> log_lines() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }

 private:
  static MockHost& self(const void* ctx) { return *static_cast<MockHost*>(const_cast<void*>(ctx)); }

  static const void* get_interface(const tenon_host* host, const char* id) {
    MockHost& mock = self(host->ctx);
    if (std::strcmp(id, TENON_HOST_PARALLEL) == 0) return mock.parallel_offered_ ? &mock.parallel_ : nullptr;
    if (std::strcmp(id, TENON_HOST_MEMORY) == 0) return &mock.memory_;
    return nullptr;
  }

  static int32_t log_enabled(const tenon_host*, uint32_t) { return 1; }

  static void log(const tenon_host* host, uint32_t, const char*, uint32_t, const char* message) {
    MockHost& mock = self(host->ctx);
    const std::lock_guard lock(mock.mutex_);
    mock.log_.emplace_back(message);
  }

  static void parallel_for(const tenon_parallel* table, int64_t parts, void (*fn)(void*, int64_t),
                           void* arg) {
    MockHost& mock = self(table->ctx);
    mock.parts_run_ += parts;
    std::atomic<int64_t> next = 0;
    const auto work = [&next, parts, fn, arg] {
      for (int64_t part = next++; part < parts; part = next++) fn(arg, part);
    };
    std::vector<std::thread> workers;
    for (int i = 1; i < mock.threads_; ++i) workers.emplace_back(work);
    work();
    for (std::thread& worker : workers) worker.join();
  }

  static int32_t num_threads(const tenon_parallel* table) { return self(table->ctx).threads_; }

  static void* alloc(const tenon_memory* table, uint64_t bytes) {
    ++self(table->ctx).live_allocations_;
    return ::aligned_alloc(64, (bytes + 63) / 64 * 64);
  }

  static void release(const tenon_memory* table, void* pointer) {
    if (pointer != nullptr) --self(table->ctx).live_allocations_;
    ::free(pointer);
  }

  int threads_;
  bool parallel_offered_ = true;
  std::atomic<int64_t> parts_run_ = 0;
  std::atomic<int64_t> live_allocations_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::string> log_;
  tenon_host host_ = {sizeof(tenon_host), TENON_ABI_MINOR, this, get_interface, log_enabled, log};
  tenon_parallel parallel_ = {sizeof(tenon_parallel), 0, this, parallel_for, num_threads};
  tenon_memory memory_ = {sizeof(tenon_memory), 0, this, alloc, release};
};

inline tenon_error empty_error() {
  tenon_error error{};
  error.struct_size = sizeof error;
  return error;
}

// A plugin between init and deinit.
class LoadedPlugin {
 public:
  // `file` is the path of the library, as plugin_file() gives it.
  LoadedPlugin(const std::string& file, const MockHost& host) : host_(host.table()) {
    library_ = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw std::runtime_error(::dlerror());
    plugin_ = static_cast<const tenon_plugin*>(::dlsym(library_, "tenon_plugin_v0"));
    tenon_error error = empty_error();
    if (plugin_ == nullptr) fail(file + " exports no tenon_plugin_v0");
    if (plugin_->init(host.table(), &error) != TENON_OK) fail(error.message);
  }
  ~LoadedPlugin() {
    plugin_->deinit();
    ::dlclose(library_);
  }
  LoadedPlugin(const LoadedPlugin&) = delete;
  LoadedPlugin& operator=(const LoadedPlugin&) = delete;

  const tenon_plugin& plugin() const { return *plugin_; }
  const tenon_host* host() const { return host_; }
  // Table T under an interface id; an exception where there is none.
  template <class T>
  const T& table(const char* id) const {
    const void* found = plugin_->get_interface(id);
    if (found == nullptr) throw std::runtime_error(std::string("the plugin has no ") + id);
    return *static_cast<const T*>(found);
  }

 private:
  [[noreturn]] void fail(const std::string& message) {
    ::dlclose(library_);
    throw std::runtime_error(message);
  }

  const tenon_host* host_;
  void* library_ = nullptr;
  const tenon_plugin* plugin_ = nullptr;
};

// What a host passes as options: all that the plugin declares, in its order, defaults filled in.
class OptionValues {
 public:
  explicit OptionValues(const tenon_plugin& plugin) {
    for (uint64_t i = 0; i < plugin.num_options; ++i) add(*plugin.options[i]);
  }
  OptionValues(const OptionValues&) = delete;
  OptionValues& operator=(const OptionValues&) = delete;

  OptionValues& set(const std::string& key, bool value) { return number(key, TENON_BOOL, value, value); }
  OptionValues& set(const std::string& key, int value) { return number(key, TENON_INT, value, value); }
  OptionValues& set(const std::string& key, double value) { return number(key, TENON_FLOAT, 0, value); }
  OptionValues& set(const std::string& key, const char* value) {
    tenon_option& option = find(key, TENON_STRING);
    option.s = text_.emplace_back(value).c_str();
    return *this;
  }
  OptionValues& set(const std::string& key, const std::vector<std::string>& values) {
    tenon_option& option = find(key, TENON_STRINGS);
    std::vector<const char*>& list = lists_.emplace_back();
    for (const std::string& value : values) list.push_back(text_.emplace_back(value).c_str());
    option.list = list.data();
    option.count = static_cast<uint32_t>(list.size());
    return *this;
  }
  const tenon_option* data() const { return options_.data(); }
  uint32_t size() const { return static_cast<uint32_t>(options_.size()); }

 private:
  void add(const tenon_option_decl& decl) {
    tenon_option& option = options_.emplace_back();
    option = {decl.name, decl.kind, 0, 0, 0, nullptr, nullptr};
    if (decl.fallback == nullptr) return;
    const std::string fallback = decl.fallback;
    if (decl.kind == TENON_BOOL) option.i = fallback == "true";
    if (decl.kind == TENON_INT) option.i = std::stoll(fallback);
    if (decl.kind == TENON_INT || decl.kind == TENON_FLOAT) option.f = std::stod(fallback);
    if (decl.kind == TENON_STRING) option.s = decl.fallback;
  }

  tenon_option& find(const std::string& key, uint32_t kind) {
    for (tenon_option& option : options_) {
      if (key == option.key && kind == option.kind) return option;
    }
    throw std::runtime_error("the plugin declares no option '" + key + "' of that kind");
  }

  OptionValues& number(const std::string& key, uint32_t kind, int64_t i, double f) {
    tenon_option& option = find(key, kind);
    option.i = i;
    option.f = f;
    return *this;
  }

  std::vector<tenon_option> options_;
  std::deque<std::string> text_;
  std::deque<std::vector<const char*>> lists_;
};

// A folder of its own, removed with everything in it.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tenon-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed for " + pattern);
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string path() const { return path_.string(); }
  std::string path(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

#ifdef TENON_PLUGIN_DIR
inline std::string plugin_file(const std::string& kind, const std::string& name) {
  return std::string(TENON_PLUGIN_DIR) + "/libtenon-" + kind + "-" + name + ".so";
}
#endif

}  // namespace tenon::test
