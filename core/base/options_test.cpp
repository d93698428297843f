#include "base/options.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

namespace tenon {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

tenon_option_decl decl(uint32_t kind, const char* name, const char* fallback, double min = 1, double max = 0,
                       const char* choices = nullptr) {
  return {sizeof(tenon_option_decl), kind, name, "what it does", fallback, choices, min, max};
}

// One option of each kind, `files` being required.
class Options : public ::testing::Test {
 protected:
  Options() {
    for (const tenon_option_decl& d : declared_) decls_.push_back(&d);
  }
  Result<OptionValues> read(const char* json) {
    return read_options(decls_, Json::parse(json), "/optimizer/options", "optimizer/adamw");
  }
  Error error_of(const char* json) {
    const Result<OptionValues> values = read(json);
    EXPECT_FALSE(values.ok()) << json;
    return values.ok() ? Error{} : values.error();
  }

  std::vector<tenon_option_decl> declared_ = {
      decl(TENON_FLOAT, "weight_decay", "0.1", 0, kInf), decl(TENON_INT, "block", "64", 1, 4096),
      decl(TENON_BOOL, "nesterov", "false"), decl(TENON_STRING, "mode", "fast", 1, 0, "fast|exact"),
      decl(TENON_STRINGS, "files", nullptr)};
  std::vector<const tenon_option_decl*> decls_;
};

TEST_F(Options, defaults_are_filled_in_the_order_of_declaration) {
  const Result<OptionValues> values = read(R"({"files": ["a", "b"]})");
  ASSERT_TRUE(values.ok()) << values.error().text();
  ASSERT_EQ(values->size(), 5u);
  const tenon_option* o = values->data();
  EXPECT_STREQ(o[0].key, "weight_decay");
  EXPECT_DOUBLE_EQ(o[0].f, 0.1);
  EXPECT_STREQ(o[1].key, "block");
  EXPECT_EQ(o[1].i, 64);
  EXPECT_DOUBLE_EQ(o[1].f, 64.0) << "an integer is there as a double too";
  EXPECT_EQ(o[2].i, 0);
  EXPECT_STREQ(o[3].s, "fast");
  ASSERT_EQ(o[4].count, 2u);
  EXPECT_STREQ(o[4].list[0], "a");
  EXPECT_STREQ(o[4].list[1], "b");
  EXPECT_EQ(values->find("block"), &o[1]);
  EXPECT_EQ(values->find("nope"), nullptr);
}

TEST_F(Options, given_values_replace_defaults_and_survive_a_move) {
  Result<OptionValues> read_values =
      read(R"({"files": [], "weight_decay": 2, "block": 4096, "nesterov": true, "mode": "exact"})");
  ASSERT_TRUE(read_values.ok()) << read_values.error().text();
  const tenon_option* before = read_values->data();
  const OptionValues values = std::move(read_values).value();
  EXPECT_EQ(values.data(), before);
  EXPECT_DOUBLE_EQ(values.find("weight_decay")->f, 2.0) << "an integer is a number";
  EXPECT_EQ(values.find("nesterov")->i, 1);
  EXPECT_STREQ(values.find("mode")->s, "exact");
  EXPECT_EQ(values.find("files")->count, 0u);
}

TEST_F(Options, unknown_key_names_the_nearest_one_and_its_place) {
  const Error e = error_of(R"({"files": [], "wieght_decay": 0.1})");
  EXPECT_EQ(e.code, "R002");
  EXPECT_EQ(e.cause, "unknown option 'wieght_decay' for optimizer/adamw");
  EXPECT_EQ(e.place, "/optimizer/options/wieght_decay");
  EXPECT_EQ(e.fix, "did you mean 'weight_decay'?");
  EXPECT_EQ(e.kind, TENON_E_RECIPE);
}

TEST_F(Options, unknown_key_near_nothing_lists_what_there_is) {
  const Error e = error_of(R"({"files": [], "zzz": 0.1})");
  EXPECT_EQ(e.fix, "options of optimizer/adamw: weight_decay, block, nesterov, mode, files");
  const Result<OptionValues> none = read_options({}, Json::parse(R"({"a": 1})"), "/x", "sink/null");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().fix, "sink/null has no options");
}

TEST_F(Options, wrong_type_says_what_was_wanted_and_what_came) {
  const Error e = error_of(R"({"files": [], "weight_decay": "lots"})");
  EXPECT_EQ(e.code, "R003");
  EXPECT_EQ(e.cause,
            "option 'weight_decay' of optimizer/adamw wants a number at least 0, got string \"lots\"");
  EXPECT_EQ(e.place, "/optimizer/options/weight_decay");
  EXPECT_EQ(error_of(R"({"files": [], "block": 1.5})").cause,
            "option 'block' of optimizer/adamw wants an integer from 1 to 4096, got number 1.5");
  EXPECT_EQ(error_of(R"({"files": [], "nesterov": 1})").cause,
            "option 'nesterov' of optimizer/adamw wants a boolean, got integer 1");
  EXPECT_EQ(error_of(R"({"files": ["a", 1]})").cause,
            "option 'files' of optimizer/adamw wants a list of strings, got array [\"a\",1]");
  EXPECT_EQ(error_of(R"({"files": null})").cause,
            "option 'files' of optimizer/adamw wants a list of strings, got null");
  EXPECT_EQ(error_of("[1]").cause, "options of optimizer/adamw want an object, got array [1]");
  EXPECT_EQ(error_of("[1]").place, "/optimizer/options");
}

TEST_F(Options, missing_required_option_is_named_with_its_type) {
  for (const char* json : {"{}", "null"}) {
    const Error e = error_of(json);
    EXPECT_EQ(e.code, "R004");
    EXPECT_EQ(e.cause, "option 'files' of optimizer/adamw is missing");
    EXPECT_EQ(e.place, "/optimizer/options");
    EXPECT_EQ(e.fix, "set files to a list of strings: what it does");
  }
}

TEST_F(Options, value_out_of_range_is_refused_at_both_ends) {
  const Error e = error_of(R"({"files": [], "block": 4097})");
  EXPECT_EQ(e.code, "R005");
  EXPECT_EQ(e.cause, "option 'block' of optimizer/adamw wants an integer from 1 to 4096, got 4097");
  EXPECT_EQ(error_of(R"({"files": [], "block": 0})").code, "R005");
  EXPECT_EQ(error_of(R"({"files": [], "block": 18446744073709551615})").code, "R005");
  EXPECT_EQ(error_of(R"({"files": [], "weight_decay": -1e-9})").code, "R005");
  EXPECT_TRUE(read(R"({"files": [], "block": 1})").ok());
  const Json nan = {{"files", Json::array()}, {"weight_decay", std::nan("")}};
  EXPECT_FALSE(read_options(decls_, nan, "", "p").ok());
}

TEST_F(Options, unbounded_integer_beyond_64_bits_is_refused) {
  const tenon_option_decl seed = decl(TENON_INT, "seed", "0");
  const tenon_option_decl* const decls[] = {&seed};
  EXPECT_TRUE(read_options(decls, Json::parse(R"({"seed": 9223372036854775807})"), "", "p").ok());
  const auto values = read_options(decls, Json::parse(R"({"seed": 9223372036854775808})"), "", "p");
  ASSERT_FALSE(values.ok());
  EXPECT_EQ(values.error().cause, "option 'seed' of p wants an integer, got 9223372036854775808");
}

TEST_F(Options, bad_choice_lists_the_choices_and_the_nearest) {
  const Error e = error_of(R"({"files": [], "mode": "exat"})");
  EXPECT_EQ(e.code, "R005");
  EXPECT_EQ(e.cause, "option 'mode' of optimizer/adamw wants a string, one of: fast, exact, got \"exat\"");
  EXPECT_EQ(e.fix, "did you mean 'exact'?");
}

TEST_F(Options, string_with_a_nul_is_refused_rather_than_cut) {
  EXPECT_EQ(
      error_of(R"({"files": ["a\u0000b"]})").cause,
      "option 'files' of optimizer/adamw wants a list of strings, got a string that holds a NUL character");
}

TEST_F(Options, key_with_a_slash_is_escaped_in_the_pointer) {
  EXPECT_EQ(error_of(R"({"files": [], "a/b~c": 1})").place, "/optimizer/options/a~1b~0c");
}

TEST_F(Options, markdown_rows_hold_type_default_and_what_is_allowed) {
  EXPECT_EQ(options_markdown(decls_),
            "| `weight_decay` | number | `0.1` | at least 0 | what it does |\n"
            "| `block` | integer | `64` | from 1 to 4096 | what it does |\n"
            "| `nesterov` | boolean | `false` |  | what it does |\n"
            "| `mode` | string | `\"fast\"` | `fast`, `exact` | what it does |\n"
            "| `files` | list of strings | required |  | what it does |\n");
}

TEST(Declarations, list_default_is_cut_at_commas) {
  const tenon_option_decl files = decl(TENON_STRINGS, "files", "a,b");
  const tenon_option_decl* const decls[] = {&files};
  const auto values = read_options(decls, Json::object(), "", "p");
  ASSERT_TRUE(values.ok());
  ASSERT_EQ(values->data()[0].count, 2u);
  EXPECT_STREQ(values->data()[0].list[1], "b");
}

std::string flaw_of(const tenon_option_decl& d) {
  const tenon_option_decl* const decls[] = {&d};
  const Status status = check_declarations(decls, "optimizer/bad");
  return status.ok() ? "sound" : status.error().code + ": " + status.error().cause;
}

TEST(Declarations, unsound_ones_are_found) {
  EXPECT_EQ(flaw_of(decl(TENON_INT, "a", "3", 1, 4)), "sound");
  EXPECT_EQ(flaw_of(decl(TENON_INT, "a", "3.5")),
            "A005: option declaration 0 'a' has default '3.5', which is not an integer");
  EXPECT_EQ(flaw_of(decl(TENON_FLOAT, "a", "nan")),
            "A005: option declaration 0 'a' has default 'nan', which is not a number");
  EXPECT_EQ(flaw_of(decl(TENON_BOOL, "a", "yes")),
            "A005: option declaration 0 'a' has default 'yes', which is not a boolean");
  EXPECT_NE(flaw_of(decl(TENON_INT, "a", "9", 1, 4)).find("wants an integer from 1 to 4, got 9"),
            std::string::npos);
  EXPECT_NE(flaw_of(decl(TENON_STRING, "a", "z", 1, 0, "x|y")).find("one of: x, y, got \"z\""),
            std::string::npos);
  EXPECT_EQ(flaw_of(decl(99, "a", "")), "A005: option declaration 0 'a' has unknown kind 99");
  EXPECT_EQ(flaw_of(decl(TENON_INT, nullptr, "1")), "A005: option declaration 0 has no name");
  tenon_option_decl small = decl(TENON_INT, "a", "1");
  small.struct_size = 8;
  EXPECT_EQ(flaw_of(small),
            "A005: option declaration 0 has struct_size 8, which leaves no room for name and doc");
  small.struct_size = offsetof(tenon_option_decl, fallback) + 4;
  EXPECT_EQ(flaw_of(small), "A005: option declaration 0 has struct_size 28, which ends inside a member");
}

TEST(Declarations, name_declared_twice_is_found) {
  const tenon_option_decl a = decl(TENON_INT, "a", "1");
  const tenon_option_decl* const decls[] = {&a, &a};
  const Status status = check_declarations(decls, "p");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().cause, "option declaration 1 'a' is declared twice");
  EXPECT_EQ(status.error().place, "p");
}

}  // namespace
}  // namespace tenon
