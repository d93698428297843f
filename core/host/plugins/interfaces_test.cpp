#include "host/plugins/interfaces.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

namespace tenon {
namespace {

// A table of the interface with every slot filled; the bytes stand for pointers, nobody calls them.
std::vector<char> full_table(const InterfaceSpec& spec, uint32_t device_type = kDLCPU) {
  std::vector<char> table(spec.size, 1);
  const auto size = static_cast<uint32_t>(spec.size);
  std::memcpy(table.data(), &size, sizeof size);
  if (spec.device_type_offset != 0) {
    std::memcpy(table.data() + spec.device_type_offset, &device_type, sizeof device_type);
  }
  return table;
}

void clear(std::vector<char>& table, const Slot& slot) {
  std::memset(table.data() + slot.offset, 0, sizeof(void*));
}

// The tables of slots are written by hand: none may be forgotten. All of them lie side by side at the
// end of their struct.
TEST(Interfaces, slots_cover_their_structs_to_the_end) {
  for (const InterfaceSpec* spec : all_interfaces()) {
    ASSERT_FALSE(spec->slots.empty()) << spec->id;
    for (size_t i = 1; i < spec->slots.size(); ++i) {
      EXPECT_EQ(spec->slots[i].offset, spec->slots[i - 1].offset + sizeof(void*))
          << spec->id << " before " << spec->slots[i].name;
    }
    EXPECT_EQ(spec->slots.back().offset + sizeof(void*), spec->size) << spec->id;
    const size_t head = std::string(spec->id) == TENON_PASS ? offsetof(tenon_pass, run) : 8;
    EXPECT_EQ(spec->slots.front().offset, head) << spec->id;
  }
}

TEST(Interfaces, ids_differ_and_lead_from_the_types) {
  std::set<std::string> ids;
  for (const InterfaceSpec* spec : all_interfaces()) EXPECT_TRUE(ids.insert(spec->id).second) << spec->id;
  EXPECT_STREQ(interface_spec<tenon_comm>().id, "tenon.comm/1");
  EXPECT_STREQ(interface_spec<tenon_data>().id, "tenon.data/1");
  EXPECT_STREQ(interface_spec<tenon_pass>().id, "tenon.pass/1");
}

TEST(Interfaces, each_mandatory_slot_is_missed_by_name) {
  for (const InterfaceSpec* spec : all_interfaces()) {
    ASSERT_TRUE(check_interface(*spec, full_table(*spec).data(), "here").ok()) << spec->id;
    for (const Slot& slot : spec->slots) {
      std::vector<char> table = full_table(*spec);
      clear(table, slot);
      const Status status = check_interface(*spec, table.data(), "here");
      if (slot.need != SlotNeed::kAlways) {
        EXPECT_TRUE(status.ok()) << spec->id << " " << slot.name;
        continue;
      }
      ASSERT_FALSE(status.ok()) << spec->id << " " << slot.name;
      EXPECT_EQ(status.error().cause, "slot '" + std::string(slot.name) + "' of " + spec->id + " is NULL");
      EXPECT_EQ(status.error().code, "A005");
      EXPECT_EQ(status.error().place, "here");
    }
  }
}

TEST(Interfaces, optional_slots_are_these_alone) {
  std::set<std::string> optional;
  for (const InterfaceSpec* spec : all_interfaces()) {
    for (const Slot& slot : spec->slots) {
      if (slot.need == SlotNeed::kOptional) optional.insert(std::string(spec->id) + " " + slot.name);
    }
  }
  EXPECT_EQ(optional,
            (std::set<std::string>{"tenon.data/1 decode", "tenon.data/1 encode", "tenon.optimizer/1 stats"}));
}

TEST(Interfaces, streams_and_events_are_mandatory_off_the_cpu) {
  const InterfaceSpec& spec = interface_spec<tenon_kernels>();
  for (const Slot& slot : spec.slots) {
    if (slot.need != SlotNeed::kOffCpu) continue;
    std::vector<char> table = full_table(spec, kDLCUDA);
    clear(table, slot);
    EXPECT_FALSE(check_interface(spec, table.data(), "").ok()) << slot.name;
  }
}

TEST(Interfaces, table_that_is_too_small_is_refused_before_its_slots_are_read) {
  uint32_t size = 8;  // alone in memory: reading on would be found by ASan
  const Status status = check_interface(interface_spec<tenon_sink>(), &size, "");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().cause, "table tenon.sink/1 has struct_size 8, less than 32");
}

}  // namespace
}  // namespace tenon
