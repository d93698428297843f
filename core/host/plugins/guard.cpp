#include "host/plugins/guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>

#include "host/plugins/guard_slot.h"

namespace tenon {
namespace {

constexpr const char* kOwnCalls[] = {"the loading of its file", "init", "deinit", "get_interface"};
constexpr uint32_t kOwnKind = 0;  // an interface's is one more than its place in all_interfaces()

uint32_t kind_of(const InterfaceSpec& spec) {
  const auto all = all_interfaces();
  return static_cast<uint32_t>(std::ranges::find(all, &spec) - all.begin()) + 1;
}

// Function-local, so that it exists before the first use from any constructor.
std::mutex& guarding_lock() {
  static std::mutex lock;
  return lock;
}

// The plugin's table as this host knows it, with guarded slots.
const void* make_guarded(const InterfaceSpec& spec, const TableCopy& table, size_t number) {
  // Never freed: a plugin's own table lives as long.
  auto* const copy = reinterpret_cast<char*>(new uint64_t[table.size()]);
  std::memcpy(copy, table.data(), table.size() * sizeof(uint64_t));
  for (const Slot& slot : spec.slots) {
    AnyFunction function = nullptr;
    std::memcpy(&function, copy + slot.offset, sizeof function);
    if (function == nullptr) continue;
    function = slot.guard(number);
    std::memcpy(copy + slot.offset, &function, sizeof function);
  }
  return copy;
}

}  // namespace

Result<const void*> guarded(const InterfaceSpec& spec, const void* table, const TableCopy& copy,
                            const char* id) {
  const std::lock_guard lock(guarding_lock());
  for (size_t i = 0; i < kMaxGuarded; ++i) {
    Guarded& one = spec.guarded[i];
    if (one.plugins == table) return one.copy;
    if (one.plugins != nullptr) continue;
    one.owner = trail::step_of(trail::announce(id, kind_of(spec)), 0);
    one.copy = make_guarded(spec, copy, i);
    one.plugins = table;
    return one.copy;
  }
  return Error{"A005", fmt::format("more than {} plugins of {} in one process", kMaxGuarded, spec.id), id,
               "use fewer, or several processes", TENON_E_UNSUPPORTED};
}

OwnMark::OwnMark(std::string_view who, OwnCall call)
    : mark_(trail::step_of(trail::announce(who, kOwnKind), static_cast<uint16_t>(call))) {}

std::string text_of_call(const trail::Found& found) {
  if (found.kind == kOwnKind)
    return found.call < std::size(kOwnCalls) ? found.owner + ", " + kOwnCalls[found.call] : "";
  const auto all = all_interfaces();
  if (found.kind > all.size()) return "";
  for (const Slot& slot : all[found.kind - 1]->slots) {
    if (slot.offset == found.call) return found.owner + ", " + slot.name;
  }
  return "";
}

}  // namespace tenon
