#include "host/plugins/interfaces.h"

#include <fmt/format.h>

#include <cstring>

#include "base/struct_size.h"
#include "base/text.h"

namespace tenon {
namespace {

#define SLOT_OF(T, name, need) \
  Slot { #name, offsetof(T, name), need, guard_of < &T::name, offsetof(T, name), greatest_code(#name)> }
#define SLOT(T, name) SLOT_OF(T, name, SlotNeed::kAlways)
#define OPTIONAL_SLOT(T, name) SLOT_OF(T, name, SlotNeed::kOptional)
#define OFF_CPU_SLOT(T, name) SLOT_OF(T, name, SlotNeed::kOffCpu)

constexpr Slot kCommSlots[] = {
    SLOT(tenon_comm, domain_open), SLOT(tenon_comm, domain_close), SLOT(tenon_comm, alloc),
    SLOT(tenon_comm, free),        SLOT(tenon_comm, group_open),   SLOT(tenon_comm, group_close),
    SLOT(tenon_comm, prepare),     SLOT(tenon_comm, start),        SLOT(tenon_comm, test),
    SLOT(tenon_comm, wait_host),   SLOT(tenon_comm, wait_stream),  SLOT(tenon_comm, abort),
    SLOT(tenon_comm, release)};

constexpr Slot kKernelSlots[] = {SLOT(tenon_kernels, open),
                                 SLOT(tenon_kernels, close),
                                 SLOT(tenon_kernels, describe),
                                 SLOT(tenon_kernels, prepare),
                                 SLOT(tenon_kernels, release),
                                 SLOT(tenon_kernels, enqueue),
                                 SLOT(tenon_kernels, alloc),
                                 SLOT(tenon_kernels, free),
                                 SLOT(tenon_kernels, copy),
                                 OFF_CPU_SLOT(tenon_kernels, stream_create),
                                 OFF_CPU_SLOT(tenon_kernels, stream_destroy),
                                 OFF_CPU_SLOT(tenon_kernels, event_create),
                                 OFF_CPU_SLOT(tenon_kernels, event_destroy),
                                 OFF_CPU_SLOT(tenon_kernels, event_record),
                                 OFF_CPU_SLOT(tenon_kernels, event_wait_stream),
                                 OFF_CPU_SLOT(tenon_kernels, event_wait_host),
                                 OFF_CPU_SLOT(tenon_kernels, event_query)};

constexpr Slot kOptimizerSlots[] = {SLOT(tenon_optimizer, open), SLOT(tenon_optimizer, close),
                                    SLOT(tenon_optimizer, describe), OPTIONAL_SLOT(tenon_optimizer, stats),
                                    SLOT(tenon_optimizer, step)};

constexpr Slot kDataSlots[] = {
    SLOT(tenon_data, open), SLOT(tenon_data, close),           SLOT(tenon_data, describe),
    SLOT(tenon_data, read), OPTIONAL_SLOT(tenon_data, encode), OPTIONAL_SLOT(tenon_data, decode)};

constexpr Slot kSinkSlots[] = {SLOT(tenon_sink, open), SLOT(tenon_sink, close), SLOT(tenon_sink, write)};
constexpr Slot kFrontendSlots[] = {SLOT(tenon_frontend, evaluate)};
constexpr Slot kScheduleSlots[] = {SLOT(tenon_schedule, owner), SLOT(tenon_schedule, rows)};
constexpr Slot kPassSlots[] = {SLOT(tenon_pass, run)};

std::string data_flaw(const void* table) {
  const auto& data = *static_cast<const tenon_data*>(table);
  if ((data.encode == nullptr) == (data.decode == nullptr)) return "";
  return fmt::format("has {} without {}", data.encode != nullptr ? "encode" : "decode",
                     data.encode != nullptr ? "decode" : "encode");
}

std::string pass_flaw(const void* table) {
  const auto& pass = *static_cast<const tenon_pass*>(table);
  if (pass.phase > TENON_PHASE_B) return fmt::format("has phase {}, which none is", pass.phase);
  for (const auto& [name, text] : {std::pair{"axes", pass.axes},
                                   {"provides", pass.provides},
                                   {"needs", pass.needs},
                                   {"conflicts", pass.conflicts}}) {
    if (text != nullptr && !is_text(text))
      return fmt::format("has '{}' that is no text: not UTF-8, or without an end", name);
  }
  return "";
}

constexpr InterfaceSpec kComm = {.id = TENON_COMM,
                                 .size = sizeof(tenon_comm),
                                 .slots = kCommSlots,
                                 .guarded = g_guarded<tenon_comm>.data(),
                                 .flags_offset = offsetof(tenon_comm, flags),
                                 .known_flags = TENON_COMM_TREE_ORDER | TENON_COMM_IN_PROCESS};
constexpr InterfaceSpec kKernels = {.id = TENON_KERNELS,
                                    .size = sizeof(tenon_kernels),
                                    .slots = kKernelSlots,
                                    .guarded = g_guarded<tenon_kernels>.data(),
                                    .device_type_offset = offsetof(tenon_kernels, device_type)};
constexpr InterfaceSpec kOptimizer = {.id = TENON_OPTIMIZER,
                                      .size = sizeof(tenon_optimizer),
                                      .slots = kOptimizerSlots,
                                      .guarded = g_guarded<tenon_optimizer>.data(),
                                      .device_type_offset = offsetof(tenon_optimizer, device_type)};
constexpr InterfaceSpec kData = {.id = TENON_DATA,
                                 .size = sizeof(tenon_data),
                                 .slots = kDataSlots,
                                 .guarded = g_guarded<tenon_data>.data(),
                                 .flaw = data_flaw};
constexpr InterfaceSpec kSink = {.id = TENON_SINK,
                                 .size = sizeof(tenon_sink),
                                 .slots = kSinkSlots,
                                 .guarded = g_guarded<tenon_sink>.data()};
constexpr InterfaceSpec kFrontend = {.id = TENON_FRONTEND,
                                     .size = sizeof(tenon_frontend),
                                     .slots = kFrontendSlots,
                                     .guarded = g_guarded<tenon_frontend>.data()};
constexpr InterfaceSpec kSchedule = {.id = TENON_SCHEDULE,
                                     .size = sizeof(tenon_schedule),
                                     .slots = kScheduleSlots,
                                     .guarded = g_guarded<tenon_schedule>.data()};
constexpr InterfaceSpec kPass = {.id = TENON_PASS,
                                 .size = sizeof(tenon_pass),
                                 .slots = kPassSlots,
                                 .guarded = g_guarded<tenon_pass>.data(),
                                 .draft = true,
                                 .flaw = pass_flaw};

constexpr const InterfaceSpec* kAll[] = {&kComm, &kKernels,  &kOptimizer, &kData,
                                         &kSink, &kFrontend, &kSchedule,  &kPass};

constexpr size_t kLargestTable = 4096;  // whose struct_size says more holds something else
constexpr uint32_t kLastDevice = 64;    // DLPack 1.x knows about twenty

template <class T>
T read_at(const void* table, size_t offset) {
  T value{};
  std::memcpy(&value, static_cast<const char*>(table) + offset, sizeof value);
  return value;
}

Error malformed(std::string cause, const std::string& who) {
  return Error{"A005", std::move(cause), who, "correct the plugin's table", TENON_E_VERSION};
}

// The first slot that has to be there and is not, in words; "" if none is missing. `size`: of the plugin's.
std::string missing_slot(const InterfaceSpec& spec, const TableCopy& copy, uint32_t size) {
  const bool cpu = spec.device_type_offset != 0 &&
                   read_at<uint32_t>(copy.data(), spec.device_type_offset) == uint32_t{kDLCPU};
  for (const Slot& slot : spec.slots) {
    const bool needed = slot.need == SlotNeed::kAlways || (slot.need == SlotNeed::kOffCpu && !cpu);
    const bool there = slot.offset + sizeof(void*) <= size;
    if (!needed || (there && read_at<const void*>(copy.data(), slot.offset) != nullptr)) continue;
    const std::string what = fmt::format("slot '{}' of {} is ", slot.name, spec.id);
    if (there) return what + "NULL";
    return what + fmt::format("missing: struct_size {} ends before it", size);
  }
  return "";
}

// Clears flags that only a newer minor than this one's has.
std::string read_flags(const InterfaceSpec& spec, TableCopy& copy, uint32_t built) {
  if (spec.flags_offset == 0) return "";
  const auto flags = read_at<uint32_t>(copy.data(), spec.flags_offset);
  const uint32_t known = flags & spec.known_flags;
  if (known != flags && built <= TENON_ABI_MINOR)
    return fmt::format("{} has flags {:#x}, of which {:#x} are unknown", spec.id, flags, flags ^ known);
  std::memcpy(reinterpret_cast<char*>(copy.data()) + spec.flags_offset, &known, sizeof known);
  return "";
}

std::string flaw_of_device(const InterfaceSpec& spec, const TableCopy& copy) {
  if (spec.device_type_offset == 0) return "";
  const auto type = read_at<uint32_t>(copy.data(), spec.device_type_offset);
  return type >= kDLCPU && type <= kLastDevice
             ? ""
             : fmt::format("{} is for device type {}, which DLPack does not know", spec.id, type);
}

}  // namespace

template <>
const InterfaceSpec& interface_spec<tenon_comm>() {
  return kComm;
}
template <>
const InterfaceSpec& interface_spec<tenon_kernels>() {
  return kKernels;
}
template <>
const InterfaceSpec& interface_spec<tenon_optimizer>() {
  return kOptimizer;
}
template <>
const InterfaceSpec& interface_spec<tenon_data>() {
  return kData;
}
template <>
const InterfaceSpec& interface_spec<tenon_sink>() {
  return kSink;
}
template <>
const InterfaceSpec& interface_spec<tenon_frontend>() {
  return kFrontend;
}
template <>
const InterfaceSpec& interface_spec<tenon_schedule>() {
  return kSchedule;
}
template <>
const InterfaceSpec& interface_spec<tenon_pass>() {
  return kPass;
}

std::span<const InterfaceSpec* const> all_interfaces() { return kAll; }

Result<TableCopy> read_interface(const InterfaceSpec& spec, const void* table, uint32_t built,
                                 const std::string& who) {
  if (spec.draft && built != TENON_ABI_MINOR) {
    return Error{"A001",
                 fmt::format("{} is a draft, and the plugin was built for ABI {}.{}, this tenon for {}.{}",
                             spec.id, TENON_ABI_MAJOR, built, TENON_ABI_MAJOR, TENON_ABI_MINOR),
                 who, "build the plugin with the headers of this tenon", TENON_E_VERSION};
  }
  const auto size = read_at<uint32_t>(table, 0);
  if (size < 2 * sizeof(uint32_t) || size > kLargestTable || !is_struct_size(size))
    return malformed(fmt::format("table {} has struct_size {}, which no table has", spec.id, size), who);
  TableCopy copy((spec.size + sizeof(uint64_t) - 1) / sizeof(uint64_t));
  const auto mine = static_cast<uint32_t>(spec.size);
  std::memcpy(copy.data(), &mine, sizeof mine);
  tenon_fill(copy.data(), table);
  std::string what = flaw_of_device(spec, copy);
  if (what.empty()) what = missing_slot(spec, copy, size);
  if (what.empty()) what = read_flags(spec, copy, built);
  if (what.empty() && spec.flaw != nullptr) {
    what = spec.flaw(copy.data());
    if (!what.empty()) what = std::string(spec.id) + " " + what;
  }
  if (!what.empty()) return malformed(std::move(what), who);
  return copy;
}

}  // namespace tenon
