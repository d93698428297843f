// The loader against plugins that are wrong in one way each. The messages are part of the claim.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "host/plugins/process_state.h"
#include "host/plugins/registry.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;

const std::string kFixtures = TENON_FIXTURES;

std::string file_of(const std::string& name) { return kFixtures + "/libtenon-test-" + name + ".so"; }

RegistryConfig only(std::vector<std::string> folders) {
  RegistryConfig config;
  config.directories = std::move(folders);
  config.default_directories = false;
  return config;
}

Error error_of(const std::string& id, std::vector<std::string> folders = {kFixtures}) {
  PluginRegistry registry(only(std::move(folders)));
  const Result<const Plugin*> plugin = registry.load(id);
  EXPECT_FALSE(plugin.ok()) << id;
  return plugin.ok() ? Error{} : plugin.error();
}

// The error of a fixture, with its path cut out of the cause.
Error flaw_of(const std::string& name) {
  Error error = error_of("test/" + name);
  const std::string head = "plugin 'test/" + name + "' cannot be loaded; tried:\n    " + file_of(name) + ": ";
  EXPECT_EQ(error.cause.substr(0, head.size()), head);
  error.cause.erase(0, head.size());
  return error;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "tenon-loader-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string path() const { return path_.string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
    return (path_ / name).string();
  }

 private:
  fs::path path_;
};

TEST(Loader, sound_plugin_is_found_by_id_and_by_path) {
  PluginRegistry registry(only({"/nonexistent", kFixtures}));
  const Result<const Plugin*> by_id = registry.load("test/good");
  ASSERT_TRUE(by_id.ok()) << by_id.error().text();
  const Plugin& plugin = **by_id;
  EXPECT_STREQ(plugin.id(), "test/good");
  EXPECT_STREQ(plugin.version(), "1.2.3");
  EXPECT_STREQ(plugin.doc(), "A test.");
  EXPECT_EQ(plugin.path(), file_of("good"));
  const Result<const Plugin*> again = registry.load("test/good");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, &plugin);
  const Result<const Plugin*> by_path = registry.load(file_of("good"));
  ASSERT_TRUE(by_path.ok()) << by_path.error().text();
  EXPECT_EQ(*by_path, &plugin);
}

TEST(Loader, options_are_those_that_the_plugin_declares) {
  PluginRegistry registry(only({kFixtures}));
  const auto plugin = registry.load("test/good");
  ASSERT_TRUE(plugin.ok());
  const auto values = (*plugin)->read_options(Json::parse("{}"), "/optimizer/options");
  ASSERT_TRUE(values.ok()) << values.error().text();
  EXPECT_DOUBLE_EQ(values->find("rate")->f, 0.5);
  const auto wrong = (*plugin)->read_options(Json::parse(R"({"rat": 1})"), "/optimizer/options");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().text(),
            "error[R002]: unknown option 'rat' for test/good\n  --> /optimizer/options/rat\n"
            "  fix: did you mean 'rate'?");
}

TEST(Loader, plugin_that_is_nowhere_lists_every_path_and_the_nearest_id) {
  const Error error = error_of("test/godo", {"/nonexistent/a", kFixtures});
  EXPECT_EQ(error.code, "A002");
  EXPECT_EQ(
      error.cause,
      "plugin 'test/godo' not found; tried:\n    /nonexistent/a/libtenon-test-godo.so: no such file\n    " +
          file_of("godo") + ": no such file");
  EXPECT_EQ(error.fix, "did you mean 'test/good'?");
  EXPECT_EQ(error_of("optimizer/unheard-of").fix,
            "build or install it, or name its folder in TENON_PLUGIN_PATH");
  EXPECT_EQ(error_of("test/good", {}).cause,
            "plugin 'test/good' not found; tried: no folder, for none was given");
}

TEST(Loader, path_that_leads_nowhere_is_named) {
  const Error error = error_of("/nonexistent/x.so");
  EXPECT_EQ(error.code, "A002");
  EXPECT_EQ(error.cause, "plugin '/nonexistent/x.so' cannot be loaded: no such file");
  EXPECT_EQ(error.fix, "give an id such as optimizer/adamw, or the path of a file");
  EXPECT_EQ(error_of(std::string("/tmp\0/x.so", 10)).code, "A002")
      << "not the folder in front of the zero byte";
  EXPECT_EQ(error_of("libc.so.6").code, "A002") << "a bare name is a path, not something for ld.so to search";
}

TEST(Loader, text_file_is_not_elf) {
  const TemporaryFolder folder;
  const std::string path =
      folder.write("libtenon-test-text.so", "This is a text file, and a rather long one.\n");
  const Error error = error_of("test/text", {folder.path()});
  EXPECT_EQ(error.code, "A003");
  EXPECT_TRUE(has(error.cause, path + ": ")) << error.cause;
  EXPECT_TRUE(has(error.cause, "invalid ELF header") || has(error.cause, "file too short")) << error.cause;
  EXPECT_EQ(error.fix, "the file is not a shared library for this machine");
}

TEST(Loader, library_without_the_symbol_is_not_a_plugin) {
  const Error error = flaw_of("no-symbol");
  EXPECT_EQ(error.code, "A004");
  EXPECT_EQ(error.cause, "no tenon_plugin_v0: not a plugin, or one of another major");
  EXPECT_EQ(error.place, file_of("no-symbol"));
}

TEST(Loader, symbol_of_a_library_that_it_links_to_does_not_count) {
  const Error error = flaw_of("borrowed");
  EXPECT_EQ(error.code, "A004");
  EXPECT_EQ(error.cause, "no tenon_plugin_v0: not a plugin, or one of another major");
}

TEST(Loader, plugin_of_another_major_is_named_with_its_symbol) {
  const Error error = flaw_of("next-major");
  EXPECT_EQ(error.code, "A001");
  EXPECT_EQ(error.cause,
            "no tenon_plugin_v0, but tenon_plugin_v1: a plugin of another major (this tenon has ABI 0.2)");
}

TEST(Loader, plugin_of_another_minor_is_refused_with_both_versions) {
  const Error error = flaw_of("other-minor");
  EXPECT_EQ(error.code, "A001");
  EXPECT_EQ(
      error.cause,
      "the plugin needs ABI 0.99 (built with 0.99), this tenon has 0.2 and takes what was built with 0.2 or "
      "newer");
  EXPECT_EQ(error.fix, "build the plugin with the headers of this tenon");
}

TEST(Loader, plugin_of_the_sdk_built_with_a_later_minor_is_taken) {
  PluginRegistry registry(only({kFixtures}));
  const auto plugin = registry.load("test/next-minor");
  ASSERT_TRUE(plugin.ok()) << plugin.error().text();
  EXPECT_TRUE((*plugin)->interface<tenon_sink>().ok());
}

TEST(Loader, plugin_of_the_minor_before_the_last_break_is_refused) {
  const Error error = flaw_of("older-minor");
  EXPECT_EQ(error.code, "A001");
  EXPECT_EQ(error.cause.substr(0, 44), "the plugin needs ABI 0.1 (built with 0.1), t");
}

TEST(Loader, plugin_with_a_small_struct_is_refused) {
  EXPECT_EQ(flaw_of("small").cause,
            "slot 'options' of tenon_plugin is missing: struct_size 40 ends before it");
}

TEST(Loader, missing_slot_of_the_plugin_is_named) {
  const Error error = flaw_of("null-init");
  EXPECT_EQ(error.code, "A005");
  EXPECT_EQ(error.cause, "slot 'init' of tenon_plugin is NULL");
}

TEST(Loader, missing_slot_of_an_interface_is_named) {
  PluginRegistry registry(only({kFixtures}));
  for (int again = 0; again < 2; ++again) {  // what is refused has been ended, and may be tried again
    const auto plugin = registry.load("test/null-step");
    ASSERT_FALSE(plugin.ok());
    EXPECT_EQ(plugin.error().code, "A005");
    EXPECT_NE(plugin.error().text().find("slot 'step' of tenon.optimizer/1 is NULL"), std::string::npos)
        << plugin.error().text();
  }
}

TEST(Loader, interface_that_the_plugin_lacks_is_named) {
  PluginRegistry registry(only({kFixtures}));
  const auto plugin = registry.load("test/good");
  ASSERT_TRUE(plugin.ok());
  EXPECT_TRUE((*plugin)->interface<tenon_optimizer>().ok());
  const auto comm = (*plugin)->interface<tenon_comm>();
  ASSERT_FALSE(comm.ok());
  EXPECT_EQ(comm.error().code, "A007");
  EXPECT_EQ(comm.error().cause, "plugin 'test/good' does not implement tenon.comm/1");
}

TEST(Loader, file_that_holds_another_plugin_is_refused_by_id_but_not_by_path) {
  EXPECT_EQ(flaw_of("wrong-id").cause, "the file holds plugin 'test/another', not 'test/wrong-id'");
  PluginRegistry registry(only({}));
  const auto plugin = registry.load(file_of("wrong-id"));
  ASSERT_TRUE(plugin.ok()) << plugin.error().text();
  EXPECT_STREQ((*plugin)->id(), "test/another");
}

TEST(Loader, init_that_fails_says_why) {
  const Error error = error_of("test/init-fails");
  EXPECT_EQ(error.code, "A006");
  EXPECT_EQ(error.cause, "init of 'test/init-fails' failed: no device of type X here (errno 19)");
  EXPECT_EQ(error.place, file_of("init-fails"));
  EXPECT_EQ(error.kind, TENON_E_DEVICE);
}

TEST(Loader, undefined_symbol_is_an_error_while_loading_and_not_the_end_later) {
  const Error error = flaw_of("undefined");
  EXPECT_EQ(error.code, "A003");
  EXPECT_TRUE(has(error.cause, "undefined symbol: tenon_function_that_is_nowhere")) << error.cause;
  EXPECT_TRUE(has(error.fix, "link the plugin with all that it uses")) << error.fix;
}

TEST(Loader, missing_dependency_is_named) {
  const Error error = flaw_of("needs-gone");
  EXPECT_EQ(error.code, "A003");
  EXPECT_TRUE(has(error.cause, "libtenon_test_gone.so: cannot open shared object file")) << error.cause;
  EXPECT_TRUE(has(error.fix, "install the library that is missing")) << error.fix;
}

TEST(Loader, unsound_declaration_of_an_option_is_refused) {
  const Error error = flaw_of("bad-option");
  EXPECT_EQ(error.code, "A005");
  EXPECT_EQ(error.cause,
            "option declaration 0 'rate' has default '1.5': option 'rate' of the plugin wants a number from "
            "0 to 1, got 1.5");
}

TEST(Loader, broken_file_in_an_early_folder_is_passed_over_aloud) {
  const TemporaryFolder folder;
  const std::string broken = folder.write("libtenon-test-good.so", "not ELF, for sure not ELF at all\n");
  std::vector<std::string> lines;
  RegistryConfig config = only({folder.path(), kFixtures});
  config.log = [&lines](uint32_t level, auto, auto, std::string_view message) {
    lines.push_back(std::to_string(level) + " " + std::string(message));
  };
  PluginRegistry registry(std::move(config));
  const auto plugin = registry.load("test/good");
  ASSERT_TRUE(plugin.ok()) << plugin.error().text();
  EXPECT_EQ((*plugin)->path(), file_of("good"));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].substr(0, 14 + broken.size()), "1 passed over " + broken);
  EXPECT_TRUE(has(lines[0], "; using " + file_of("good")));
}

TEST(Loader, broken_file_and_missing_ones_are_all_in_one_error) {
  const TemporaryFolder folder;
  const std::string broken = folder.write("libtenon-test-x.so", "not ELF, for sure not ELF at all\n");
  const Error error = error_of("test/x", {"/nonexistent", folder.path()});
  EXPECT_EQ(error.code, "A003");
  EXPECT_EQ(error.place, broken);
  EXPECT_TRUE(has(error.cause, "\n    /nonexistent/libtenon-test-x.so: no such file\n    " + broken + ": "));
}

TEST(Loader, two_files_of_one_id_are_not_mixed) {
  const TemporaryFolder folder;
  fs::copy_file(file_of("good"), folder.path() + "/copy.so");
  PluginRegistry registry(only({kFixtures}));
  ASSERT_TRUE(registry.load("test/good").ok());
  const auto copy = registry.load(folder.path() + "/copy.so");
  ASSERT_FALSE(copy.ok());
  EXPECT_EQ(copy.error().cause, "plugin 'test/good' is loaded already, from " + file_of("good"));
}

struct sigaction action_of(int number) {
  struct sigaction action {};
  sigaction(number, nullptr, &action);
  return action;
}

void embedders_handler(int) {}

// The first test to load this fixture, whose constructor runs but once in a process.
TEST(Loader, signal_handlers_and_float_environment_are_put_back) {
  struct sigaction mine {};
  mine.sa_handler = embedders_handler;
  mine.sa_flags = SA_RESTART;
  sigaddset(&mine.sa_mask, SIGUSR2);
  struct sigaction before_segv {
  }, before_bus{};
  sigaction(SIGSEGV, &mine, &before_segv);
  sigaction(SIGBUS, nullptr, &before_bus);
  const unsigned mxcsr = _mm_getcsr();
  PluginRegistry registry(only({kFixtures}));
  const auto plugin = registry.load("test/handlers");
  const struct sigaction after = action_of(SIGSEGV);
  const unsigned mxcsr_after = _mm_getcsr();
  sigaction(SIGSEGV, &before_segv, nullptr);
  ASSERT_TRUE(plugin.ok()) << plugin.error().text();
  EXPECT_EQ(after.sa_handler, &embedders_handler) << "a constructor installed its own";
  EXPECT_TRUE(after.sa_flags & SA_RESTART);
  EXPECT_EQ(sigismember(&after.sa_mask, SIGUSR2), 1);
  EXPECT_EQ(action_of(SIGBUS).sa_handler, before_bus.sa_handler) << "init installed its own";
  EXPECT_EQ(mxcsr_after & 0x8040u, mxcsr & 0x8040u) << "flush to zero, denormals are zero";
}

TEST(Loader, guard_puts_back_every_signal_that_can_be_set) {
  for (const int number : {1, 2, 13, 15, 17, SIGRTMIN, 64}) {
    const auto before = action_of(number).sa_handler;
    {
      const ProcessStateGuard guard;
      signal(number, embedders_handler);
      ASSERT_EQ(action_of(number).sa_handler, &embedders_handler);
    }
    EXPECT_EQ(action_of(number).sa_handler, before) << number;
  }
}

// How often init has been called without a deinit, as the fixture tells it.
uint32_t live_inits(const Plugin& plugin) {
  const auto optimizer = plugin.interface<tenon_optimizer>();
  tenon_optimizer_info info{};
  info.struct_size = sizeof info;
  (*optimizer)->describe(nullptr, &info, nullptr);
  return info.num_slots;
}

void log_from(const Plugin& plugin) {
  const auto optimizer = plugin.interface<tenon_optimizer>();
  (*optimizer)->step(nullptr, nullptr, nullptr, 0, nullptr, nullptr);
}

TEST(Loader, two_registries_share_one_initialised_plugin_and_the_last_ends_it) {
  std::vector<std::string> first_log, second_log;
  const auto config = [](std::vector<std::string>& lines) {
    RegistryConfig c = only({kFixtures});
    c.log_level = TENON_LOG_INFO;
    c.log = [&lines](auto, auto, auto, std::string_view message) { lines.emplace_back(message); };
    return c;
  };
  auto first = std::make_unique<PluginRegistry>(config(first_log));
  auto second = std::make_unique<PluginRegistry>(config(second_log));
  const Plugin& one = **first->load("test/other-good");
  const Plugin& two = **second->load("test/other-good");
  EXPECT_NE(&one, &two);
  EXPECT_EQ(live_inits(two), 1u);
  log_from(two);
  EXPECT_EQ(first_log, (std::vector<std::string>{"test/other-good starts", "step"}));
  first.reset();
  EXPECT_EQ(live_inits(two), 1u);
  log_from(two);
  EXPECT_EQ(first_log.size(), 2u) << "the embedder that is gone hears nothing";
  EXPECT_EQ(second_log, (std::vector<std::string>{"step"}));
  const tenon_optimizer table = **two.interface<tenon_optimizer>();  // libraries stay mapped
  second.reset();
  tenon_optimizer_info info{};
  info.struct_size = sizeof info;
  table.describe(nullptr, &info, nullptr);
  EXPECT_EQ(info.num_slots, 0u) << "ended";
  PluginRegistry third(only({kFixtures}));
  EXPECT_EQ(live_inits(**third.load("test/other-good")), 1u) << "and may start again";
}

TEST(Loader, error_of_a_call_names_plugin_and_slot) {
  PluginRegistry registry(only({kFixtures}));
  const Plugin& plugin = **registry.load("test/good");
  tenon_error error = empty_abi_error();
  tenon_optimizer_state* state = nullptr;
  const tenon_code code = (*plugin.interface<tenon_optimizer>())->open(nullptr, &state, &error);
  const Status status = plugin.check(code, error, "open");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().cause, "cannot open");
  EXPECT_EQ(status.error().place, "test/good, open");
  EXPECT_EQ(status.error().kind, TENON_E_UNSUPPORTED);
  EXPECT_TRUE(plugin.check(TENON_OK, error, "open").ok());
}

TEST(Loader, list_tells_of_each_file_what_it_is_or_why_it_cannot_be_loaded) {
  const TemporaryFolder folder;
  folder.write("libtenon-test-aaa.so", "text, text, text, text, text, text, text, text, text, text\n");
  folder.write("readme.txt", "no plugin");
  fs::copy_file(file_of("good"), folder.path() + "/libtenon-test-good.so");
  const PluginRegistry registry(only({folder.path(), "/nonexistent", kFixtures}));
  std::map<std::string, PluginListing> by_path;
  for (const PluginListing& listing : registry.list()) by_path[listing.path] = listing;
  const PluginListing& text = by_path[folder.path() + "/libtenon-test-aaa.so"];
  EXPECT_EQ(text.id, "test/aaa");
  ASSERT_TRUE(text.error.has_value());
  EXPECT_EQ(text.error->code, "A003");
  const PluginListing& good = by_path[folder.path() + "/libtenon-test-good.so"];
  ASSERT_FALSE(good.error.has_value()) << good.error->text();
  EXPECT_EQ(good.version, "1.2.3");
  EXPECT_EQ(good.doc, "A test.");
  EXPECT_NE(good.options.find("| `rate` |"), std::string::npos) << good.options;
  EXPECT_FALSE(good.shadowed);
  EXPECT_TRUE(by_path[file_of("good")].shadowed);
  EXPECT_EQ(by_path[file_of("other-minor")].error->code, "A001");
  EXPECT_FALSE(by_path[file_of("init-fails")].error.has_value()) << "nothing is initialised";
  EXPECT_EQ(by_path.count(folder.path() + "/readme.txt"), 0u);
}

TEST(Loader, folders_beside_the_core_come_behind_those_given) {
  RegistryConfig config;
  config.directories = {"/mine"};
  const PluginRegistry registry(std::move(config));
  const std::vector<std::string>& folders = registry.directories();
  ASSERT_FALSE(folders.empty());
  EXPECT_EQ(folders.front(), "/mine");
  const fs::path executable = fs::canonical("/proc/self/exe");
  const std::string beside = (executable.parent_path().parent_path() / "lib" / "tenon").string();
  const auto at = std::find(folders.begin(), folders.end(), beside);
  const auto system = std::find(folders.begin(), folders.end(), "/usr/lib/tenon");
  EXPECT_NE(at, folders.end()) << beside;
  EXPECT_LT(at, system);
}

TEST(Loader, many_threads_may_load_at_once) {
  PluginRegistry registry(only({kFixtures}));
  std::vector<const Plugin*> got(4, nullptr);
  std::vector<std::thread> threads;
  for (auto& plugin : got) {
    threads.emplace_back([&registry, &plugin] {
      const auto loaded = registry.load("test/good");
      if (loaded.ok()) plugin = *loaded;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(got[0], nullptr);
  for (const Plugin* plugin : got) EXPECT_EQ(plugin, got[0]);
}

}  // namespace
}  // namespace tenon
