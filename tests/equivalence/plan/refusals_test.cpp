// What compile() refuses beyond what tests/e2e sees: what the front end fills in, and what models rarely
// have.
#include "strategy_programs.hpp"

namespace tenon::test {
namespace {

std::string refusal(const Json& document, int world) {
  try {
    compile_document(document, world);
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "";
}

TEST(Refusals, a_pipeline_without_a_schedule) {
  Json recipe = recipe_of({"", "gpt2", {{"pp", 2}}, "pipeline", "1f1b", 2}, "none", false);
  recipe.erase("schedule");
  EXPECT_EQ(
      refusal(recipe, 2),
      "error[P033]: the model has stages, but no schedule says in which order they work\n  --> /strategies\n"
      "  fix: name one, for instance schedule/1f1b");
}

// Ranks that share a sequence hold two parts of it; a group that spans both would not be the group of one
// rank.
TEST(Refusals, routing_groups_across_the_parts_of_a_sequence) {
  Json recipe = recipe_of({"", "moe", {{"cp", 2}}, "all_gather"}, "none", false);
  recipe["context"] = 8;
  EXPECT_EQ(refusal(recipe, 2),
            "error[P010]: the 2 tokens of a part of a sequence, of which each of 2 ranks has two, are not "
            "whole routing "
            "groups of 4\n  --> /context\n  fix: use routing groups of 2 tokens or a divisor of that, or a "
            "longer context");
}

}  // namespace
}  // namespace tenon::test
