// Fused kinds in whole programs: they are there where the recipe does not forbid them.
#include <set>

#include "strategy_programs.hpp"

namespace tenon::test {
namespace {

Json recipe_with(const std::string& model, bool fusion) {
  Json recipe = recipe_of({"one", model, {{"dp", 1}}, "data"}, "none", false);
  recipe["fusion"] = fusion;
  recipe["microbatches"] = 2;
  return recipe;
}

std::set<std::string> kinds(const Json& recipe) {
  std::set<std::string> out;
  for (const Program& program : compile_document(recipe, 1).programs) {
    for (const Instr& instr : program.instrs) out.insert(instr.kind + (instr.accumulate ? " +=" : ""));
  }
  return out;
}

TEST(fusion, of_models_uses_every_fused_kind) {
  std::set<std::string> fused;
  for (const char* model : {"gpt2", "llama"}) {
    const auto with = kinds(recipe_with(model, true)), without = kinds(recipe_with(model, false));
    std::ranges::set_difference(with, without, std::inserter(fused, fused.end()));
  }
  EXPECT_EQ(fused,
            (std::set<std::string>{"add_layernorm", "add_rmsnorm", "bias_gelu",
                                   "layernorm_dgrad +=", "linear_cross_entropy_grad",
                                   "linear_cross_entropy_grad +=", "linear_dgrad +=", "rmsnorm_dgrad +="}));
}

TEST(fusion, leaves_the_work_as_it_is) {
  for (const char* model : {"gpt2", "llama", "moe"}) {
    const auto with = compile_document(recipe_with(model, true), 1).programs,
               without = compile_document(recipe_with(model, false), 1).programs;
    double sums[2] = {};
    for (const Instr& instr : with[0].instrs) sums[0] += instr.flops;
    for (const Instr& instr : without[0].instrs) sums[1] += instr.flops;
    EXPECT_LT(with[0].instrs.size(), without[0].instrs.size()) << model;
    EXPECT_DOUBLE_EQ(sums[0], sums[1]) << model;
  }
}

}  // namespace
}  // namespace tenon::test
