// Fused kinds in whole programs: they are there where the recipe does not forbid them.
#include <map>
#include <set>

#include "plan/program/kernel_desc.h"
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

// A kind that another plugin runs is no part of a fused one; everything else is the program that it was.
TEST(fusion, leaves_out_a_kind_that_is_overridden_and_nothing_else) {
  const auto kernels_with = [](const char* overridden) {
    Json recipe = recipe_with("gpt2", true);
    recipe["kernels"]["plugin"] = "kernels/cpu";
    if (*overridden != '\0') recipe["kernels"]["overrides"][overridden] = {{"plugin", "kernels/reference"}};
    std::map<std::string, int> out;
    const std::vector<Program> programs = compile_document(recipe, 1).programs;
    for (const Instr& instr : programs.at(0).instrs) ++out[kernel_key(instr, 0)];
    return out;
  };
  // Those that were there before and not now, and the other way round.
  const auto change = [before = kernels_with(""), &kernels_with](const char* overridden) {
    std::set<std::string> out;
    const auto after = kernels_with(overridden);
    const auto kind = [](const std::string& key) { return key.substr(0, key.find(' ')); };
    for (const auto& [key, count] : before)
      if (!after.contains(key) || after.at(key) != count) out.insert("-" + kind(key));
    for (const auto& [key, count] : after)
      if (!before.contains(key) || before.at(key) != count) out.insert("+" + kind(key));
    return out;
  };
  using Kinds = std::set<std::string>;
  EXPECT_EQ(change("gelu"), (Kinds{"-bias_gelu", "+bias_add", "+gelu"}));
  EXPECT_EQ(change("gelu_dgrad"), Kinds{}) << "it is part of no fused kind";
  EXPECT_EQ(change("bias_gelu"), Kinds{}) << "one that is fused may be overridden too";
  EXPECT_EQ(change("cross_entropy"), (Kinds{"-linear_cross_entropy_grad", "+linear", "+cross_entropy",
                                            "+cross_entropy_dgrad", "+linear_wgrad", "+linear_dgrad"}));
}

}  // namespace
}  // namespace tenon::test
