// What compile() refuses that no recipe in Lua can say, because the front end fills it in.
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
  EXPECT_EQ(refusal(recipe, 2),
            "error[P033]: the model has stages, but no schedule says in which order they work\n  --> /strategies\n"
            "  fix: name one, for instance schedule/1f1b");
}

}  // namespace
}  // namespace tenon::test
