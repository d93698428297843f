#include "host/plugins/host.h"

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/parallel.h"

namespace tenon {
namespace {

constexpr uint64_t kAlignment = 64;

// NULL for a table that is none of ours, or NULL.
const Host* self_of(const tenon_host* host) {
  return host == nullptr ? nullptr : static_cast<const Host*>(host->ctx);
}

std::string_view view(const char* text) { return text == nullptr ? std::string_view() : text; }

int32_t table_log_enabled(const tenon_host* host, uint32_t level) {
  const Host* const self = self_of(host);
  return self != nullptr && self->log_enabled(level) ? 1 : 0;
}

void table_log(const tenon_host* host, uint32_t level, const char* file, uint32_t line, const char* message) {
  if (const Host* const self = self_of(host)) self->log(level, view(file), line, view(message));
}

}  // namespace

Host::Host(LogFunction log, uint32_t max_level)
    : log_(std::move(log)),
      max_level_(max_level),
      memory_{sizeof(tenon_memory), 0, this, allocate, release},
      table_{sizeof(tenon_host), TENON_ABI_MINOR, this, get_interface, table_log_enabled, table_log} {}

MemoryUse Host::memory_use() const { return {bytes_.load(), peak_bytes_.load(), blocks_.load()}; }

bool Host::log_enabled(uint32_t level) const {
  const std::shared_lock lock(log_lock_);
  if (heir_ != nullptr) return heir_->log_enabled(level);
  return log_ != nullptr && level <= max_level_;
}

void Host::log(uint32_t level, std::string_view file, uint32_t line, std::string_view message) const {
  const std::shared_lock lock(log_lock_);
  if (heir_ != nullptr) return heir_->log(level, file, line, message);
  if (log_ != nullptr && level <= max_level_) log_(level, file, line, message);
}

void Host::hand_over_log(std::shared_ptr<const Host> heir) {
  const std::unique_lock lock(log_lock_);
  log_ = nullptr;
  heir_ = std::move(heir);
}

const void* Host::get_interface(const tenon_host* host, const char* id) {
  const std::string_view wanted = view(id);
  if (wanted == TENON_HOST_PARALLEL) return parallel_table();
  const Host* const self = self_of(host);
  if (wanted == TENON_HOST_MEMORY && self != nullptr) return self->memory();
  return nullptr;
}

// Each block is preceded by one alignment's worth of bytes, which hold its size.
void* Host::allocate(const tenon_memory* self, uint64_t bytes) {
  if (self == nullptr || bytes > UINT64_MAX - 2 * kAlignment) return nullptr;
  const uint64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  char* const block = static_cast<char*>(std::aligned_alloc(kAlignment, kAlignment + rounded));
  if (block == nullptr) return nullptr;
  std::memcpy(block, &bytes, sizeof bytes);
  static_cast<Host*>(self->ctx)->count_allocation(bytes);
  return block + kAlignment;
}

void Host::count_allocation(uint64_t bytes) {
  const uint64_t now = bytes_.fetch_add(bytes) + bytes;
  blocks_.fetch_add(1);
  uint64_t peak = peak_bytes_.load();
  while (peak < now && !peak_bytes_.compare_exchange_weak(peak, now)) {
  }
}

void Host::release(const tenon_memory* self, void* pointer) {
  if (self == nullptr || pointer == nullptr) return;
  char* const block = static_cast<char*>(pointer) - kAlignment;
  uint64_t bytes = 0;
  std::memcpy(&bytes, block, sizeof bytes);
  Host* const host = static_cast<Host*>(self->ctx);
  host->bytes_.fetch_sub(bytes);
  host->blocks_.fetch_sub(1);
  std::free(block);
}

}  // namespace tenon
