// The interfaces as data: id, size, and the slots that a table must fill before anybody calls it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

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
  size_t size;  // of the struct as this core knows it; a plugin's may be smaller or larger
  std::span<const Slot> slots;
  Guarded* guarded;               // kMaxGuarded of them (guard.h)
  size_t device_type_offset = 0;  // of a uint32_t DLDeviceType; 0: the table has none
  size_t flags_offset = 0;        // of uint32_t flags; 0: the table has none
  uint32_t known_flags = 0;
  bool draft = false;  // plugin and core must have been built for the same minor
  // What is wrong with the rest of a table of this size, "" if nothing is. NULL: there is no rest.
  std::string (*flaw)(const void* table) = nullptr;
};

// A plugin's table as this core knows it: what a smaller one lacks is zero, what a larger one has behind is
// left out. Of 8-byte words, so that any table may lie in it.
using TableCopy = std::vector<uint64_t>;

// Defined for tenon_comm, tenon_kernels, tenon_optimizer, tenon_data, tenon_sink, tenon_frontend,
// tenon_schedule and tenon_pass.
template <class T>
const InterfaceSpec& interface_spec();

std::span<const InterfaceSpec* const> all_interfaces();

// A copy of `table` without the flags that only a later minor knows. `built`: the minor that its plugin was
// built for. `who` goes into the place. Reads only what struct_size says is there. Errors, whose cause names
// the interface and the slot:
//   A001 a draft of another minor
//   A005 a size that is no table's, a slot that is NULL or behind the end, an unknown flag of a plugin that
//   is
//        not newer, an unknown device or phase, a text that is none
Result<TableCopy> read_interface(const InterfaceSpec& spec, const void* table, uint32_t built,
                                 const std::string& who);

}  // namespace tenon
