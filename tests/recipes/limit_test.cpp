// Recipes that never end or eat memory: one clear error each, and no process left.
#include <sys/wait.h>

#include <cerrno>

#include "support.h"

namespace tenon {
namespace {

class Limit : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD) << "a child is left";
  }
};

TEST_F(Limit, endless_loop_ends_at_its_line) {
  EXPECT_EQ(message_of("local n = 0\nwhile true do\n  n = n + 1\nend"),
            "error[R014]: the recipe takes too long: more than 50 million instructions\n"
            "  --> r.lua:3:3\n"
            "  |\n"
            "3 |   n = n + 1\n"
            "  |   ^\n"
            "  fix: is there a loop without end?");
}

TEST_F(Limit, pcall_cannot_swallow_a_limit) {
  EXPECT_TRUE(has(message_of("while true do pcall(function() while true do end end) end"),
                  "error[R014]: the recipe takes too long"));
  EXPECT_TRUE(has(
      message_of("local s = \"x\"\nwhile true do pcall(function()\n  while true do s = s .. s end\nend) end"),
      "error[R014]: the recipe needs more than 64 MiB of memory\n  --> r.lua:3:"));
}

TEST_F(Limit, pcall_catches_other_errors) {
  EXPECT_TRUE(resolve(tiny_run("seed = select(2, pcall(function() return 5 end)),")).recipe["seed"] == 5);
  EXPECT_TRUE(resolve(tiny_run("seed = pcall(error, \"x\") and 1 or 2,")).recipe["seed"] == 2);
}

TEST_F(Limit, memory_bombs_end_at_their_line) {
  EXPECT_TRUE(has(message_of("local x = 1\nlocal s = (\"x\"):rep(1 << 30)"),
                  "error[R014]: the recipe needs more than 64 MiB of memory\n  --> r.lua:2:"));
  EXPECT_TRUE(has(message_of("local all = {}\nfor i = 1, 1 << 40 do all[i] = i end"),
                  "error[R014]: the recipe needs more than 64 MiB of memory\n  --> r.lua:2:"));
}

TEST_F(Limit, pattern_bomb_ends_by_processor_time) {
  const std::string message =
      message_of("local s = (\"a\"):rep(100000)\nlocal x = s:find((\".-\"):rep(20) .. \"b\")");
  EXPECT_EQ(message,
            "error[R014]: the recipe used up its processor time\n"
            "  --> r.lua\n"
            "  fix: a search with several '.-' or '.*' in its pattern can take for ever");
}

TEST_F(Limit, finalizers_and_weak_tables_are_refused) {
  EXPECT_TRUE(has(message_of("setmetatable({}, { __gc = function() while true do end end })"),
                  "error[R012]: setmetatable: recipes have no '__gc'\n  --> r.lua:1:"));
  EXPECT_TRUE(
      has(message_of("setmetatable({}, { __mode = \"k\" })"), "setmetatable: recipes have no '__mode'"));
}

TEST_F(Limit, deep_recursion_ends) {
  EXPECT_TRUE(has(message_of("local function f(n) return 1 + f(n + 1) end\nlocal x = f(1)"),
                  "error[R014]: calls are nested too deep (stack overflow)\n  --> r.lua:1:"));
  // Through a function of C: the other kind of stack.
  EXPECT_TRUE(has(message_of("local function f(s) return (s:gsub(\".\", f)) end\nlocal x = f(\"a\")"),
                  "error[R014]: calls are nested too deep"));
}

TEST_F(Limit, table_that_contains_itself_ends) {
  EXPECT_TRUE(
      has(message_of(tiny_run("", "local a = {}; a.a = a\nlocal k = t.plugin(\"kernels/x\", { b = a })")),
          "error[R003]: 'b' of kernels/x wants a number"));
  EXPECT_TRUE(has(message_of("local t = require \"tenon\"\nlocal function make() " + tiny_run() +
                             "end\nlocal r = make(); r.model.ops[1].x = r.model\nreturn r"),
                  "tables are nested too deep, or contain themselves"));
}

TEST_F(Limit, large_file_is_refused) {
  EXPECT_TRUE(has(message_of("--" + std::string(1 << 20, 'x')), "a recipe has at most 1 MiB"));
}

}  // namespace
}  // namespace tenon
