// What the core offers to plugins (tenon/host.h): log, parallel_for, counted memory.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <shared_mutex>
#include <string_view>

#include "tenon/host.h"

namespace tenon {

// Where log lines go. Called on any thread, several at once; must not destroy the Host or its registry.
// `level` is TENON_LOG_ERROR ... TENON_LOG_DEBUG.
using LogFunction =
    std::function<void(uint32_t level, std::string_view file, uint32_t line, std::string_view message)>;

// Memory that plugins hold outside the planned arena.
struct MemoryUse {
  uint64_t bytes = 0;       // now
  uint64_t peak_bytes = 0;  // the most so far
  uint64_t blocks = 0;      // now
};

// One host table with its services. Does not move: plugins keep pointers into it. Thread-safe.
class Host {
 public:
  // Without a function nothing is logged. Lines above `max_level` are dropped.
  explicit Host(LogFunction log = {}, uint32_t max_level = TENON_LOG_WARN);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const tenon_host* table() const { return &table_; }
  const tenon_memory* memory() const { return &memory_; }
  MemoryUse memory_use() const;

  bool log_enabled(uint32_t level) const;
  void log(uint32_t level, std::string_view file, uint32_t line, std::string_view message) const;

  // From now on lines go to `heir` (NULL: nowhere). When it returns, the function given to the
  // constructor is not running and will never be called again.
  void hand_over_log(std::shared_ptr<const Host> heir);

 private:
  static const void* get_interface(const tenon_host* host, const char* id);
  static void* allocate(const tenon_memory* self, uint64_t bytes);
  static void release(const tenon_memory* self, void* pointer);
  void count_allocation(uint64_t bytes);

  mutable std::shared_mutex log_lock_;
  LogFunction log_;
  std::shared_ptr<const Host> heir_;
  uint32_t max_level_;

  std::atomic<uint64_t> bytes_{0}, peak_bytes_{0}, blocks_{0};
  tenon_memory memory_;
  tenon_host table_;
};

}  // namespace tenon
