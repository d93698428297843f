// Options as a plugin declares and reads them, with plugin.hpp alone.
#include <gtest/gtest.h>

#include <vector>

#include "tenon_sdk/plugin.hpp"

namespace tenon::sdk {
namespace {

struct Config {
  uint32_t num_options;
  const tenon_option* options;
};

constexpr tenon_option_decl kDeclared[] = {
    float_option("rate", "a number", "0.5", 0), int_option("depth", "a whole number", nullptr, 1, 9),
    bool_option("loud", "yes or no", "false"), string_option("mode", "a word", "fast", "fast|exact"),
    strings_option("files", "words", "a,b")};

TEST(Options, each_kind_has_a_helper_that_declares_it) {
  const uint32_t kinds[] = {TENON_FLOAT, TENON_INT, TENON_BOOL, TENON_STRING, TENON_STRINGS};
  for (size_t i = 0; i < std::size(kinds); ++i) {
    EXPECT_EQ(kDeclared[i].kind, kinds[i]);
    EXPECT_EQ(kDeclared[i].struct_size, sizeof(tenon_option_decl));
  }
  EXPECT_EQ(kDeclared[0].min, 0);
  EXPECT_EQ(kDeclared[0].max, kNoLimit);
  EXPECT_EQ(kDeclared[1].fallback, nullptr) << "required";
  EXPECT_EQ(kDeclared[1].max, 9);
  EXPECT_GT(kDeclared[2].min, kDeclared[2].max) << "no limits";
  EXPECT_STREQ(kDeclared[3].choices, "fast|exact");
}

TEST(Options, each_kind_is_read_by_its_key) {
  const char* const files[] = {"x", "y z"};
  const tenon_option given[] = {{"rate", TENON_FLOAT, 0, 0, 0.25, nullptr, nullptr},
                                {"depth", TENON_INT, 0, 3, 3.0, nullptr, nullptr},
                                {"loud", TENON_BOOL, 0, 1, 0, nullptr, nullptr},
                                {"mode", TENON_STRING, 0, 0, 0, "exact", nullptr},
                                {"files", TENON_STRINGS, 2, 0, 0, nullptr, files},
                                {"none", TENON_STRINGS, 0, 0, 0, nullptr, nullptr}};
  const Options options(Config{static_cast<uint32_t>(std::size(given)), given});
  EXPECT_EQ(options.number("rate"), 0.25);
  EXPECT_EQ(options.integer("depth"), 3);
  EXPECT_EQ(options.number("depth"), 3.0);
  EXPECT_TRUE(options.boolean("loud"));
  EXPECT_EQ(options.string("mode"), "exact");
  EXPECT_EQ(options.strings("files"), (std::vector<std::string>{"x", "y z"}));
  EXPECT_TRUE(options.strings("none").empty());
  EXPECT_EQ(options.find("mod"), nullptr);
  EXPECT_THROW(options.integer("mod"), Failure);
}

}  // namespace
}  // namespace tenon::sdk
