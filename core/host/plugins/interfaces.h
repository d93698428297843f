// The interfaces as data: id, size, and the slots that a table must fill before anybody calls it.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "host/plugins/guard_slot.h"
#include "tenon/comm.h"
#include "tenon/data.h"
#include "tenon/draft/pass.h"
#include "tenon/frontend.h"
#include "tenon/kernels.h"
#include "tenon/optimizer.h"
#include "tenon/schedule.h"
#include "tenon/sink.h"

namespace tenon {

enum class SlotNeed {
  kAlways,
  kOptional,
  kOffCpu,  // only where the table is for a device other than the CPU
};

struct Slot {
  const char* name;
  size_t offset;
  SlotNeed need;
  // What stands for the slot in guarded table i of its interface (guard.h).
  AnyFunction (*guard)(size_t i);
};

struct InterfaceSpec {
  const char* id;
  size_t size;  // of the struct; while the ABI is 0.x a plugin's must not be smaller
  std::span<const Slot> slots;
  size_t device_type_offset;  // of a uint32_t DLDeviceType; 0: the table has none
  Guarded* guarded;           // kMaxGuarded of them (guard.h)
};

// Defined for tenon_comm, tenon_kernels, tenon_optimizer, tenon_data, tenon_sink, tenon_frontend,
// tenon_schedule and tenon_pass.
template <class T>
const InterfaceSpec& interface_spec();

std::span<const InterfaceSpec* const> all_interfaces();

// Whether `table` is large enough and has no slot missing. `who` goes into the place. Code A005; the
// cause names the interface and the slot. Reads only what struct_size says is there.
Status check_interface(const InterfaceSpec& spec, const void* table, const std::string& who);

}  // namespace tenon
