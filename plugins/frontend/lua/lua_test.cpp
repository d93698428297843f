// The lexer, and the plugin through its C interface. What recipes mean is tested in
// tests/recipes.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "source.h"
#include "tenon/frontend.h"
#include "tenon/plugin.h"

namespace tenon::lua {
namespace {

std::string shown(const Position& at) { return std::to_string(at.line) + ":" + std::to_string(at.column); }

std::string key_at(const Source& source, size_t constructor, const std::string& key) {
  const auto& keys = source.constructors().at(constructor).keys;
  const auto it = keys.find(key);
  return it == keys.end() ? "none" : shown(source.position_of(it->second));
}

TEST(Source, keys_of_nested_constructors_have_their_own_positions) {
  const Source source(
      "local x = a.b.f {\n  one = 1,\n  [\"two\"] = { one = { 2 } },\n  g(1, 2), three = function(a, b) "
      "return a, b end,\n"
      "  four = 4; 5\n}");
  ASSERT_EQ(source.constructors().size(), 3U);
  EXPECT_EQ(key_at(source, 0, "one"), "2:3");
  EXPECT_EQ(key_at(source, 0, "two"), "3:4");
  EXPECT_EQ(key_at(source, 0, "three"), "4:12");
  EXPECT_EQ(key_at(source, 0, "four"), "5:3");
  EXPECT_EQ(key_at(source, 0, "a"), "none");
  EXPECT_EQ(key_at(source, 1, "one"), "3:15");
  ASSERT_EQ(source.constructors()[0].items.size(), 2U);
  EXPECT_EQ(shown(source.position_of(source.constructors()[0].items[0])), "4:3");
  EXPECT_EQ(shown(source.position_of(source.constructors()[0].items[1])), "5:13");
  EXPECT_EQ(shown(source.position_of(source.constructors()[0].start)), "1:11");
}

TEST(Source, comments_and_strings_hide_braces) {
  const Source source(
      "--[[ { ]] local s = \"{\\\"{\" .. '{' .. [==[ { ]] ]==] -- {\n--[==[\n{ ]==] return {}");
  ASSERT_EQ(source.constructors().size(), 1U);
  EXPECT_EQ(shown(source.position_of(source.constructors()[0].open)), "3:15");
}

TEST(Source, comparison_in_a_list_is_not_a_key) {
  const Source source("return { a == b, c = d == e }");
  EXPECT_EQ(source.constructors()[0].keys.size(), 1U);
  EXPECT_EQ(source.constructors()[0].items.size(), 1U);
}

TEST(Source, instrumented_text_wraps_constructors_and_returns_on_the_same_lines) {
  const std::string head = "local __tenon_table, __tenon_values = ...; ";
  EXPECT_EQ(Source("return f{\n1}").instrumented(true, 7),
            head + "return __tenon_values(f(__tenon_table(7,{\n1})))");
  EXPECT_EQ(Source("return f{\n1}").instrumented(false, 7), head + "return __tenon_values(f{\n1})");
  EXPECT_EQ(Source("local a = {{}}").instrumented(true, 0),
            head + "local a = __tenon_table(0,{__tenon_table(1,{})})");
  EXPECT_EQ(Source("if a then return end return").instrumented(true, 0),
            head + "if a then return end return");
  EXPECT_EQ(Source("if a then return b, c else return d; end").instrumented(true, 0),
            head + "if a then return __tenon_values(b, c) else return __tenon_values(d); end");
  EXPECT_EQ(Source("return function() return 1 end").instrumented(true, 0),
            head + "return __tenon_values(function() return __tenon_values(1) end)");
}

TEST(Source, variable_is_told_from_key_and_field) {
  const Source source("local o = { lr = x.lr + lr }");
  EXPECT_EQ(shown(source.find_variable("lr", 1)), "1:25");
  EXPECT_EQ(shown(source.find_variable("none", 1)), "1:1");
}

TEST(Source, parameters_are_known_by_the_name_that_holds_them) {
  const auto names =
      Source("local p, q = 1\nlocal r = t.params { lr = 1, steps = 2 }\nlocal function f() end")
          .local_names();
  EXPECT_EQ(names, (std::vector<std::string>{"p", "q", "r", "f", "r.lr", "r.steps"}));
}

// Lua has refused such texts before; the lexer must still stay inside them.
TEST(Source, any_bytes_are_lexed_without_harm) {
  std::mt19937 random(5);  // NOLINT(cert-msc51-cpp): the same texts every time
  const std::string alphabet = "{}[]()=,;.:-\"'\\\n ax1e+end return function local params [[ ]] -- --[[ ";
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = 0; i < 60; ++i) text += alphabet[random() % alphabet.size()];
    const Source source(text);
    for (const Token& token : source.tokens()) {
      ASSERT_LT(token.begin, token.end);
      ASSERT_LE(token.end, text.size());
    }
    EXPECT_GE(source.instrumented(true, 0).size(), text.size());
    (void)source.local_names();
    (void)source.find_last_return();
    (void)source.find_call("a", 1);
    for (int line = 0; line < 5; ++line) (void)source.line(line);
  }
}

// ---- the plugin ----

class Plugin : public testing::Test {
 protected:
  void SetUp() override {
    // RTLD_NODELETE as the host loads plugins.
    void* library = dlopen(PLUGIN_FILE, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    ASSERT_NE(library, nullptr) << dlerror();
    plugin_ = static_cast<const tenon_plugin*>(dlsym(library, "tenon_plugin_v0"));
    ASSERT_NE(plugin_, nullptr);
    std::string name = testing::TempDir() + "frontend-lua-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  const tenon_frontend* frontend() const {
    return static_cast<const tenon_frontend*>(plugin_->get_interface(TENON_FRONTEND));
  }
  nlohmann::json evaluate(const std::string& source) const {
    const std::string path = folder_ + "/r.lua";
    std::ofstream(path) << source;
    const tenon_frontend_config config{sizeof(config), 0, nullptr, path.c_str(), LIBRARY_DIR, nullptr};
    std::vector<std::string> documents;
    tenon_error error{};
    error.struct_size = sizeof error;
    const tenon_code code = frontend()->evaluate(
        &config,
        [](void* arg, const char* json, uint64_t size) {
          static_cast<std::vector<std::string>*>(arg)->emplace_back(json, size);
        },
        &documents, &error);
    EXPECT_EQ(code, TENON_OK) << error.message;
    EXPECT_EQ(documents.size(), 1U) << "emit is called once";
    return documents.empty() ? nlohmann::json() : nlohmann::json::parse(documents[0]);
  }

  const tenon_plugin* plugin_ = nullptr;
  std::string folder_;
};

TEST_F(Plugin, says_what_it_is) {
  EXPECT_STREQ(plugin_->id, "frontend/lua");
  EXPECT_EQ(plugin_->abi_minor_required, TENON_ABI_OLDEST_MINOR);
  EXPECT_NE(frontend(), nullptr);
  EXPECT_EQ(plugin_->get_interface("tenon.comm/1"), nullptr);
}

TEST_F(Plugin, emits_one_document_for_a_mistake) {
  const nlohmann::json document = evaluate("local x = y\n");
  EXPECT_EQ(document, (nlohmann::json{{"error",
                                       {{"code", "R001"},
                                        {"file", folder_ + "/r.lua"},
                                        {"line", 1},
                                        {"column", 11},
                                        {"message", "global 'y' is not defined"},
                                        {"hint", ""},
                                        {"source", "local x = y"}}}}));
}

TEST_F(Plugin, evaluations_do_not_see_each_other) {
  const std::string recipe =
      "local t = require \"tenon\"\nreturn t.run { steps = 1, batch = 1, context = 2, seed = t.seen and 1 or "
      "2,\n"
      "model = t.models.mlp { layers = 1, width = 2, vocab = 4 }, data = t.data.text { file = \"x\" },\n"
      "optim = t.optim.sgd { lr = 1 } }\n";
  const nlohmann::json first = evaluate("rawset(require \"tenon\", \"seen\", true)\n" + recipe);
  EXPECT_EQ(first["recipe"]["seed"], 1);
  EXPECT_EQ(evaluate("require(\"tenon.core\")\n" + recipe)["error"]["code"], "R001");
  std::string without = recipe;
  without.replace(without.find("t.seen and 1 or 2"), 17, "2");
  const nlohmann::json second = evaluate(without);
  EXPECT_EQ(second["recipe"]["seed"], 2);
  EXPECT_EQ(second.dump(), evaluate(without).dump());
}

TEST_F(Plugin, refuses_an_incomplete_configuration) {
  tenon_error error{};
  error.struct_size = sizeof error;
  const tenon_frontend_config config{sizeof(config), 0, nullptr, nullptr, LIBRARY_DIR, nullptr};
  EXPECT_EQ(frontend()->evaluate(
                &config, [](void*, const char*, uint64_t) {}, nullptr, &error),
            TENON_E_ARGUMENT);
  EXPECT_STREQ(error.message, "frontend/lua: path, library and emit are needed");
}

}  // namespace
}  // namespace tenon::lua
