#include "host/plugins/interfaces.h"

#include <fmt/format.h>

#include <cstring>

namespace tenon {
namespace {

#define SLOT_OF(T, name, need) \
  Slot { #name, offsetof(T, name), need, guard_of < &T::name, offsetof(T, name)> }
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

constexpr InterfaceSpec kComm = {TENON_COMM, sizeof(tenon_comm), kCommSlots, 0, g_guarded<tenon_comm>.data()};
constexpr InterfaceSpec kKernels = {TENON_KERNELS, sizeof(tenon_kernels), kKernelSlots,
                                    offsetof(tenon_kernels, device_type), g_guarded<tenon_kernels>.data()};
constexpr InterfaceSpec kOptimizer = {TENON_OPTIMIZER, sizeof(tenon_optimizer), kOptimizerSlots,
                                      offsetof(tenon_optimizer, device_type),
                                      g_guarded<tenon_optimizer>.data()};
constexpr InterfaceSpec kData = {TENON_DATA, sizeof(tenon_data), kDataSlots, 0, g_guarded<tenon_data>.data()};
constexpr InterfaceSpec kSink = {TENON_SINK, sizeof(tenon_sink), kSinkSlots, 0, g_guarded<tenon_sink>.data()};
constexpr InterfaceSpec kFrontend = {TENON_FRONTEND, sizeof(tenon_frontend), kFrontendSlots, 0,
                                     g_guarded<tenon_frontend>.data()};
constexpr InterfaceSpec kSchedule = {TENON_SCHEDULE, sizeof(tenon_schedule), kScheduleSlots, 0,
                                     g_guarded<tenon_schedule>.data()};
constexpr InterfaceSpec kPass = {TENON_PASS, sizeof(tenon_pass), kPassSlots, 0, g_guarded<tenon_pass>.data()};

constexpr const InterfaceSpec* kAll[] = {&kComm, &kKernels,  &kOptimizer, &kData,
                                         &kSink, &kFrontend, &kSchedule,  &kPass};

template <class T>
T read_at(const void* table, size_t offset) {
  T value{};
  std::memcpy(&value, static_cast<const char*>(table) + offset, sizeof value);
  return value;
}

Error malformed(std::string cause, const std::string& who) {
  return Error{"A005", std::move(cause), who, "the plugin must fill every mandatory slot of its tables",
               TENON_E_VERSION};
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

Status check_interface(const InterfaceSpec& spec, const void* table, const std::string& who) {
  const auto size = read_at<uint32_t>(table, 0);
  if (size < spec.size) {
    return malformed(fmt::format("table {} has struct_size {}, less than {}", spec.id, size, spec.size), who);
  }
  const bool cpu =
      spec.device_type_offset != 0 && read_at<uint32_t>(table, spec.device_type_offset) == uint32_t{kDLCPU};
  for (const Slot& slot : spec.slots) {
    const bool needed = slot.need == SlotNeed::kAlways || (slot.need == SlotNeed::kOffCpu && !cpu);
    if (needed && read_at<const void*>(table, slot.offset) == nullptr) {
      return malformed(fmt::format("slot '{}' of {} is NULL", slot.name, spec.id), who);
    }
  }
  return {};
}

}  // namespace tenon
