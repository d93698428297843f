#include "host/plugins/library.h"

#include <gtest/gtest.h>

namespace tenon {
namespace {

tenon_code init(const tenon_host*, tenon_error*) { return TENON_OK; }
void deinit() {}
const void* get_interface(const char*) { return nullptr; }

tenon_plugin sound() {
  return {sizeof(tenon_plugin),
          TENON_ABI_MAJOR,
          TENON_ABI_MINOR,
          TENON_ABI_MINOR,
          "sink/x",
          "1.0",
          "Writes.",
          nullptr,
          0,
          init,
          deinit,
          get_interface};
}

std::string flaw(const tenon_plugin& plugin, const std::string& id = "sink/x") {
  const Status status = check_plugin(plugin, "x.so", id);
  return status.ok() ? "sound" : status.error().code + ": " + status.error().cause;
}

TEST(CheckPlugin, sound_one_passes) { EXPECT_EQ(flaw(sound()), "sound"); }

TEST(CheckPlugin, what_it_was_built_with_and_what_it_needs_decide) {
  const auto of = [](uint32_t major, uint32_t built, uint32_t required) {
    tenon_plugin plugin = sound();
    plugin.abi_major = major;
    plugin.abi_minor_built = built;
    plugin.abi_minor_required = required;
    return flaw(plugin);
  };
  EXPECT_EQ(of(0, 2, 2), "sound");
  EXPECT_EQ(of(0, 7, 2), "sound") << "a newer plugin that can do with this host";
  EXPECT_EQ(of(0, 7, 0), "sound");
  for (const std::string& refused : {of(0, 1, 1), of(0, 7, 7), of(0, 7, 3), of(7, 2, 2)}) {
    EXPECT_EQ(refused.substr(0, 26), "A001: the plugin needs ABI");
    EXPECT_NE(refused.find("this tenon has 0.2 and takes what was built with 0.2 or newer"),
              std::string::npos);
  }
  EXPECT_EQ(of(0, 3, 2), "sound");
  EXPECT_EQ(of(0, 2, 1), "sound");
  EXPECT_EQ(of(0, 2, 3), "A005: abi_minor_required 3 is above abi_minor_built 2");
}

TEST(CheckPlugin, each_missing_field_is_named) {
  tenon_plugin plugin = sound();
  plugin.id = nullptr;
  EXPECT_EQ(flaw(plugin), "A005: slot 'id' of tenon_plugin is NULL");
  plugin = sound();
  plugin.version = nullptr;
  EXPECT_EQ(flaw(plugin), "A005: slot 'version' of tenon_plugin is NULL");
  plugin = sound();
  plugin.doc = nullptr;
  EXPECT_EQ(flaw(plugin), "A005: slot 'doc' of tenon_plugin is NULL");
  plugin = sound();
  plugin.num_options = 1;
  EXPECT_EQ(flaw(plugin), "A005: slot 'options' of tenon_plugin is NULL");
  plugin = sound();
  plugin.init = nullptr;
  EXPECT_EQ(flaw(plugin), "A005: slot 'init' of tenon_plugin is NULL");
  plugin = sound();
  plugin.deinit = nullptr;
  EXPECT_EQ(flaw(plugin), "A005: slot 'deinit' of tenon_plugin is NULL");
  plugin = sound();
  plugin.get_interface = nullptr;
  EXPECT_EQ(flaw(plugin), "A005: slot 'get_interface' of tenon_plugin is NULL");
}

TEST(CheckPlugin, size_is_checked_before_anything_is_read_and_version_before_the_rest) {
  tenon_plugin plugin = sound();
  plugin.struct_size = 8;
  EXPECT_EQ(flaw(plugin), "A005: struct_size 8 leaves no room for a version");
  plugin.struct_size = 16;
  EXPECT_EQ(flaw(plugin), "A005: slot 'id' of tenon_plugin is missing: struct_size 16 ends before it");
  plugin.struct_size = offsetof(tenon_plugin, get_interface) + 4;
  EXPECT_EQ(flaw(plugin), "A005: struct_size 76 ends inside a member");
  plugin.abi_minor_required = plugin.abi_minor_built = 1;
  EXPECT_EQ(
      flaw(plugin),
      "A001: the plugin needs ABI 0.1 (built with 0.1), this tenon has 0.2 and takes what was built with "
      "0.2 or newer");
}

TEST(CheckPlugin, id_must_be_the_one_asked_for) {
  EXPECT_EQ(flaw(sound(), "sink/y"), "A005: the file holds plugin 'sink/x', not 'sink/y'");
  EXPECT_EQ(flaw(sound(), ""), "sound");
  tenon_plugin plugin = sound();
  plugin.id = "nonsense";
  EXPECT_EQ(flaw(plugin, ""), "A005: 'nonsense' is not a plugin id");
}

TEST(PluginId, only_kind_and_name_make_one) {
  for (const char* good : {"optimizer/adamw", "schedule/zb-h1", "comm/x_2"})
    EXPECT_TRUE(is_plugin_id(good)) << good;
  for (const char* bad :
       {"", "/", "a", "a/", "/b", "a/b/c", "../b", "a/..", "a/b.so", "./b", "A/b", "a-b/c", "a/-b"}) {
    EXPECT_FALSE(is_plugin_id(bad)) << bad;
  }
}

TEST(PluginId, file_names_lead_there_and_back) {
  for (const char* id : {"optimizer/adamw", "schedule/zb-h1"}) EXPECT_EQ(id_of_library(library_name(id)), id);
  EXPECT_EQ(library_name("schedule/zb-h1"), "libtenon-schedule-zb-h1.so");
  for (const char* other :
       {"libtenon.so", "libtenon-.so", "libtenon-x.so", "libtenon-x-y.so.1", "libc.so", ""}) {
    EXPECT_EQ(id_of_library(other), "") << other;
  }
}

TEST(OpenLibrary, a_file_that_is_not_there_and_one_that_is_a_folder) {
  const std::lock_guard lock(loading_lock());
  const auto none = open_library("/nonexistent/libtenon-a-b.so", "a/b");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, "A002");
  EXPECT_EQ(none.error().cause, "no such file");
  EXPECT_EQ(none.error().place, "/nonexistent/libtenon-a-b.so");
  const auto folder = open_library("/tmp", "");
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, "A003");
  EXPECT_EQ(folder.error().cause, "not a regular file");
}

}  // namespace
}  // namespace tenon
