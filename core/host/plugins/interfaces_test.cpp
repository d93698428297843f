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
  if (spec.flags_offset != 0) std::memset(table.data() + spec.flags_offset, 0, sizeof(uint32_t));
  if (std::string_view(spec.id) == TENON_PASS) {  // a phase, and words
    std::memset(table.data() + sizeof(uint32_t), 0, offsetof(tenon_pass, run) - sizeof(uint32_t));
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
    ASSERT_TRUE(read_interface(*spec, full_table(*spec).data(), TENON_ABI_MINOR, "here").ok()) << spec->id;
    for (const Slot& slot : spec->slots) {
      std::vector<char> table = full_table(*spec);
      clear(table, slot);
      const auto status = read_interface(*spec, table.data(), TENON_ABI_MINOR, "here");
      const std::string name = slot.name;
      if (name == "encode" || name == "decode") {
        EXPECT_FALSE(status.ok()) << "one of them alone";
        continue;
      }
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
    EXPECT_FALSE(read_interface(spec, table.data(), TENON_ABI_MINOR, "").ok()) << slot.name;
  }
}

std::string flaw(const InterfaceSpec& spec, const void* table, uint32_t built = TENON_ABI_MINOR) {
  const auto read = read_interface(spec, table, built, "here");
  return read.ok() ? "sound" : read.error().code + ": " + read.error().cause;
}

TEST(Interfaces, a_struct_size_that_no_table_has_is_refused_before_anything_else_is_read) {
  for (uint32_t size :
       {0u, 4u, 7u, 4097u, 0xffffffffu}) {  // alone in memory: reading on would be found by ASan
    EXPECT_EQ(flaw(interface_spec<tenon_sink>(), &size),
              "A005: table tenon.sink/1 has struct_size " + std::to_string(size) + ", which no table has");
  }
  uint32_t head[] = {8, 0};
  EXPECT_EQ(flaw(interface_spec<tenon_sink>(), head),
            "A005: slot 'open' of tenon.sink/1 is missing: struct_size 8 ends before it");
}

TEST(Interfaces, half_a_slot_is_none) {
  for (const InterfaceSpec* spec : all_interfaces()) {
    for (const Slot& slot : spec->slots) {
      std::vector<char> table = full_table(*spec);
      const auto size = static_cast<uint32_t>(slot.offset + 4);
      std::memcpy(table.data(), &size, sizeof size);
      EXPECT_EQ(flaw(*spec, table.data()), "A005: table " + std::string(spec->id) + " has struct_size " +
                                               std::to_string(size) + ", which no table has");
    }
  }
}

TEST(Interfaces, unknown_flags_are_refused_unless_the_plugin_is_newer) {
  const InterfaceSpec& spec = interface_spec<tenon_comm>();
  std::vector<char> table = full_table(spec);
  const uint32_t flags = TENON_COMM_TREE_ORDER | 8u;
  std::memcpy(table.data() + spec.flags_offset, &flags, sizeof flags);
  EXPECT_EQ(flaw(spec, table.data()), "A005: tenon.comm/1 has flags 0x9, of which 0x8 are unknown");
  const auto read = read_interface(spec, table.data(), TENON_ABI_MINOR + 1, "here");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(reinterpret_cast<const tenon_comm*>(read->data())->flags, uint32_t{TENON_COMM_TREE_ORDER});
}

TEST(Interfaces, drafts_match_exactly) {
  const InterfaceSpec& spec = interface_spec<tenon_pass>();
  for (const uint32_t built : {TENON_ABI_MINOR - 1, TENON_ABI_MINOR + 1})
    EXPECT_EQ(flaw(spec, full_table(spec).data(), built).substr(0, 34), "A001: tenon.pass/1 is a draft, and");
  EXPECT_EQ(flaw(interface_spec<tenon_sink>(), full_table(interface_spec<tenon_sink>()).data(), 7), "sound");
}

TEST(Interfaces, devices_that_none_is_are_refused) {
  const InterfaceSpec& spec = interface_spec<tenon_optimizer>();
  EXPECT_EQ(flaw(spec, full_table(spec, 0).data()),
            "A005: tenon.optimizer/1 is for device type 0, which DLPack does not know");
  EXPECT_EQ(flaw(spec, full_table(spec, kDLCUDA).data()), "sound");
}

TEST(Interfaces, phases_and_words_of_passes_are_read) {
  const InterfaceSpec& spec = interface_spec<tenon_pass>();
  std::vector<char> table = full_table(spec);
  auto& pass = *reinterpret_cast<tenon_pass*>(table.data());
  pass.phase = 2;
  EXPECT_EQ(flaw(spec, table.data()), "A005: tenon.pass/1 has phase 2, which none is");
  pass.phase = TENON_PHASE_B;
  pass.needs = "data\xff";
  EXPECT_EQ(flaw(spec, table.data()),
            "A005: tenon.pass/1 has 'needs' that is no text: not UTF-8, or without an end");
  pass.needs = "data";
  EXPECT_EQ(flaw(spec, table.data()), "sound");
}

}  // namespace
}  // namespace tenon
