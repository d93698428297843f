// Brute force over the sharding rules: whatever type_op() says about placements on a 2x2 mesh is run on the
// shards with the reference kernels and compared with the op on whole tensors.
#include <gtest/gtest.h>

#include "rule_judge.hpp"

namespace tenon::test {
namespace {

constexpr size_t kExhaustive = 100'000;  // combinations over two axes that are enumerated, not sampled
constexpr int kSample = 1'000;

std::string text_of(const RuleJudge& judge, const std::vector<Placement>& given) {
  std::string out = judge.def().kind;
  for (const Placement& placement : given) out += " | " + text(placement, {}, mesh_2x2());
  return out;
}

// Subsets of the inputs by bit mask, as the linear set that they would be.
std::string linear_set(uint32_t mask) {
  std::string out;
  for (int i = 0; i < 32; ++i) {
    if ((mask >> i & 1) != 0) out += (out.empty() ? "" : ",") + std::to_string(i);
  }
  return out;
}

std::vector<Placement> partial_on(const Rule& rule, uint32_t mask, AxisId axis) {
  std::vector<Placement> given;
  for (size_t i = 0; i < rule.inputs.size(); ++i) {
    given.push_back(Placement::replicated(rule.inputs[i].size()));
    if ((mask >> i & 1) != 0) given.back().add_partial(axis, Reduction::sum);
  }
  return given;
}

bool is_free(const Rule::Factor& factor) {
  return factor.kind == Rule::Kind::parallel || factor.kind == Rule::Kind::sum;
}

bool is_declared(const Rule& rule, uint32_t mask) {
  for (const auto& set : rule.linear) {
    uint32_t declared = 0;
    for (int i : set) declared |= 1u << i;
    if (declared == mask) return true;
  }
  return false;
}

class EveryOp : public testing::TestWithParam<OpCase> {
 protected:
  // Placements of each input; dims of whole factors only where `whole` says so, of factors over which the op
  // exchanges never: no kernel does that alone.
  std::vector<std::vector<Placement>> options(const std::vector<AxisId>& axes, bool whole) const {
    std::vector<std::vector<Placement>> out;
    const Rule& rule = judge_.rule();
    for (size_t i = 0; i < rule.inputs.size(); ++i) {
      std::vector<bool> allowed;
      for (int f : rule.inputs[i]) {
        const Rule::Kind kind = rule.factors[f].kind;
        allowed.push_back(kind != Rule::Kind::exchange && (whole || kind != Rule::Kind::whole));
      }
      out.push_back(placements_of(rule.inputs[i].size(), allowed, judge_.is_real(i), axes));
    }
    return out;
  }
  std::vector<std::vector<Placement>> output_options() const {
    std::vector<std::vector<Placement>> out;
    for (const auto& dims : judge_.rule().outputs) {
      out.push_back(placements_of(dims.size(), std::vector<bool>(dims.size(), true), false, {0, 1}));
    }
    return out;
  }
  // Each axis shards one factor of the operands that have it, or is partial on a linear set; a few stay out.
  std::vector<Placement> agreeing_combination(Random& random) const {
    const Rule& rule = judge_.rule();
    std::vector<Placement> given = partial_on(rule, 0, 0);
    for (AxisId axis : {0u, 1u}) {
      const auto choice =
          static_cast<size_t>(below(random, static_cast<int64_t>(rule.factors.size() + rule.linear.size())));
      for (size_t i = 0; i < given.size(); ++i) {
        if (below(random, 8) == 0) continue;
        if (choice >= rule.factors.size()) {
          const auto& set = rule.linear[choice - rule.factors.size()];
          if (std::ranges::count(set, static_cast<int>(i)) > 0) given[i].add_partial(axis, Reduction::sum);
        } else if (const auto at = std::ranges::find(rule.inputs[i], static_cast<int>(choice));
                   at != rule.inputs[i].end() && is_free(rule.factors[choice])) {
          given[i].dims[static_cast<size_t>(at - rule.inputs[i].begin())].push_back(axis);
        }
      }
    }
    return given;
  }
  void expect_sound(const std::vector<Placement>& given,
                    const std::vector<std::optional<Placement>>& wanted = {}) {
    const std::string verdict = judge_.judge(judge_.rule(), given, wanted);
    if (!verdict.empty()) ADD_FAILURE() << text_of(judge_, given) << ": " << verdict;
    ++cases_;
  }

  Kernels kernels_{plugin_file("kernels", "reference")};
  RuleJudge judge_{kernels_, GetParam()};
  size_t cases_ = 0;
};

TEST_P(EveryOp, IsRightOnItsShardsForAllPlacements) {
  const auto visit = [this](const std::vector<Placement>& given) {
    if (!HasFailure()) expect_sound(given);
  };
  for_each_combination(options({0}, false), visit);
  const auto both = options({0, 1}, false);
  double total = 1;
  for (const auto& option : both) total *= static_cast<double>(option.size());
  Random random(7);
  if (total <= kExhaustive) {
    for_each_combination(both, visit);
  } else {
    for (int i = 0; i < kSample; ++i) visit(random_combination(both, random));
    for (int i = 0; i < kSample; ++i) visit(agreeing_combination(random));
  }
  const auto outputs = output_options();
  const auto with_whole = options({0, 1}, true);
  for (int i = 0; i < kSample && !HasFailure(); ++i) {
    expect_sound(random_combination(with_whole, random));
    const std::vector<Placement> pinned = random_combination(outputs, random);
    expect_sound(random_combination(both, random), {pinned.begin(), pinned.end()});
  }
  std::cout << "[ CASES    ] " << GetParam().label << ": " << cases_ << " placements, "
            << judge_.numeric_runs() << " different typings run\n";
  EXPECT_GT(judge_.numeric_runs(), 0u);
}

TEST_P(EveryOp, RefusesEverySetOfPartialsThatIsNotDeclaredLinear) {
  const Rule& rule = judge_.rule();
  for (uint32_t mask = 1; mask < 1u << rule.inputs.size(); ++mask) {
    for (AxisId axis : {0u, 1u}) {
      const Typing typing = type_op(rule, partial_on(rule, mask, axis), {});
      for (size_t i = 0; i < typing.inputs.size(); ++i) {
        const bool kept = is_declared(rule, mask) && (mask >> i & 1) != 0;
        EXPECT_EQ(typing.inputs[i].is_partial(axis), kept) << linear_set(mask);
      }
      for (const Placement& out : typing.outputs) EXPECT_EQ(out.is_partial(axis), is_declared(rule, mask));
    }
  }
}

TEST_P(EveryOp, RefusesPartialMaximaEverywhere) {
  const Rule& rule = judge_.rule();
  for (size_t i = 0; i < rule.inputs.size(); ++i) {
    std::vector<Placement> given = partial_on(rule, 0, 0);
    given[i].add_partial(0, Reduction::max);
    for (const Placement& placement : type_op(rule, given, {}).inputs) EXPECT_FALSE(placement.is_partial(0));
  }
}

TEST_P(EveryOp, NeverKeepsAWholeFactorSharded) {
  const Rule& rule = judge_.rule();
  Random random(11);
  const auto both = options({0, 1}, true);
  const auto outputs = output_options();
  for (int i = 0; i < kSample; ++i) {
    const std::vector<Placement> pinned = random_combination(outputs, random);
    const Typing typing = type_op(rule, random_combination(both, random), {pinned.begin(), pinned.end()});
    for (size_t k = 0; k < rule.inputs.size(); ++k) {
      for (size_t d = 0; d < rule.inputs[k].size(); ++d) {
        const bool whole = rule.factors[rule.inputs[k][d]].kind == Rule::Kind::whole;
        EXPECT_TRUE(!whole || typing.inputs[k].dims[d].empty());
      }
    }
  }
}

// Where the table refuses more than the numbers demand. Everything else that it refuses is wrong when
// allowed.
const std::set<std::string> kStricterThanNeeded = {
    "linear layernorm_dgrad 2",  // a gradient is linear in the weight too, but weights are never partial
    "linear rmsnorm_dgrad 2",
    "linear rmsnorm_wgrad 1",  // linear in x and in rstd, given the other
    "linear rmsnorm_wgrad 2",
    "linear combine_dgrad 1,2",  // dy is linear in the gates and dgate in y, given dx
    "whole attention_dgrad t",   // the statistics of the whole row come with lse
    "whole dispatch k",          // sums over choices; but a router's choices are made together
    "whole dispatch_dgrad k",   "whole combine k", "whole combine_dgrad k",
};

// The judge finds the op wrong for a rule under which exactly the inputs of `mask` may be partial.
bool found_wrong_if_linear(RuleJudge& judge, uint32_t mask) {
  const Rule planted = judge.with_text(judge.def().rule, judge.def().whole, linear_set(mask));
  return !judge.judge(planted, partial_on(planted, mask, 0)).empty();
}

TEST_P(EveryOp, IsFoundWrongWhenARefusedSetOfPartialsIsPlantedAsLinear) {
  const Rule& rule = judge_.rule();
  for (uint32_t mask = 1; mask < 1u << rule.inputs.size(); ++mask) {
    bool real = true;
    for (size_t i = 0; i < rule.inputs.size(); ++i)
      real = real && ((mask >> i & 1) == 0 || judge_.is_real(i));
    if (!real || is_declared(rule, mask)) continue;
    const std::string name = "linear " + GetParam().kind + " " + linear_set(mask);
    EXPECT_EQ(found_wrong_if_linear(judge_, mask), !kStricterThanNeeded.contains(name)) << name;
  }
}

// Shards one factor over axis x wherever it occurs.
std::vector<Placement> sharded_factor(const Rule& rule, size_t factor) {
  std::vector<Placement> given;
  for (const auto& operand : rule.inputs) {
    given.push_back(Placement::replicated(operand.size()));
    for (size_t d = 0; d < operand.size(); ++d) {
      if (operand[d] == static_cast<int>(factor)) given.back().dims[d] = {0};
    }
  }
  return given;
}

TEST_P(EveryOp, IsFoundWrongWhenAWholeFactorIsPlantedAsShardable) {
  const Rule& rule = judge_.rule();
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    if (is_free(rule.factors[f])) continue;
    const std::string name = "whole " + GetParam().label + " " + rule.factors[f].name;
    std::vector<Placement> given = sharded_factor(rule, f);
    Rule planted = rule;
    const auto in_output = [f](const auto& dims) {
      return std::ranges::count(dims, static_cast<int>(f)) > 0;
    };
    planted.factors[f].kind =
        std::ranges::any_of(rule.outputs, in_output) ? Rule::Kind::parallel : Rule::Kind::sum;
    if (std::ranges::all_of(given, [](const Placement& p) { return p.is_replicated(); })) continue;
    EXPECT_EQ(!judge_.judge(planted, given).empty(), !kStricterThanNeeded.contains(name)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, EveryOp, testing::ValuesIn(op_cases()),
                         [](const auto& info) { return info.param.label; });

TEST(Rules, TheListOfStricterThanNeededNamesOnlyWhatTheTableRefuses) {
  Kernels kernels(plugin_file("kernels", "reference"));
  std::set<std::string> refused;
  for (const OpCase& c : op_cases()) {
    const RuleJudge judge(kernels, c);
    for (uint32_t mask = 1; mask < 1u << c.ranks.size(); ++mask) {
      if (!is_declared(judge.rule(), mask)) refused.insert("linear " + c.kind + " " + linear_set(mask));
    }
    for (const Rule::Factor& factor : judge.rule().factors) {
      if (!is_free(factor)) refused.insert("whole " + c.label + " " + factor.name);
    }
  }
  for (const std::string& name : kStricterThanNeeded) EXPECT_TRUE(refused.contains(name)) << name;
}

OpCase case_named(const std::string& label) {
  for (const OpCase& c : op_cases()) {
    if (c.label == label) return c;
  }
  throw std::runtime_error("no case " + label);
}

// Rules as someone might get them wrong. `at`: a placement that shows it.
struct WrongRule {
  const char* name;
  const char* label;
  const char* whole;
  const char* linear;
  std::vector<Placement> at;
};

std::vector<WrongRule> wrong_rules() {
  const Partial p{0, Reduction::sum};
  return {
      {"LayernormMayShardHidden", "layernorm", "", "", {{{{}, {}, {0}}, {}}, {{{0}}, {}}, {{{0}}, {}}}},
      {"GeluTakesPartials", "gelu", "", "0", {{{{}, {}, {}}, {p}}}},
      {"LinearTakesJointPartials", "linear", "", "0,1", {{{{}, {}, {}}, {p}}, {{{}, {}}, {p}}}},
      {"AttentionMayShardKeys",
       "attention",
       "s d",
       "",
       {{{{}, {}, {}, {}, {}}, {}},
        {{{}, {0}, {}, {}}, {}},
        {{{}, {0}, {}, {}}, {}},
        {{{}, {}}, {}},
        {{{}, {0}}, {}}}},
      {"AttentionTakesPartialValues",
       "attention",
       "s t d",
       "2",
       {{{{}, {}, {}, {}, {}}, {}},
        {{{}, {}, {}, {}}, {}},
        {{{}, {}, {}, {}}, {p}},
        {{{}, {}}, {}},
        {{{}, {}}, {}}}},
      {"BiasIsAddedToAPartial", "bias_add", "", "0", {{{{}, {}, {}}, {p}}, {{{}}, {}}}},
      {"AddTakesOnePartial", "add", "", "0|1", {{{{}, {}, {}}, {p}}, {{{}, {}, {}}, {}}}},
      {"RouterAddsItsLossOncePerAddend",
       "route_topk_dgrad",
       "e k",
       "0",
       {{{{}, {}, {}}, {p}}, {{{}, {}, {}}, {}}, {{{}}, {}}, {{{}, {}, {}}, {}}}},
      {"RouterMayShardExperts", "route_topk", "k", "", {{{{}, {}, {0}}, {}}, {{{}}, {}}}},
      {"CombineMayShardSlots",
       "combine",
       "e k",
       "",
       {{{{}, {}, {}, {0}, {}}, {}}, {{{}, {}, {}}, {}}, {{{}, {}, {}}, {}}, {{{}, {}, {}}, {}}}},
      {"NormOfAPartial", "sqnorm", "", "0", {{{{}, {}, {}}, {p}}}},
  };
}

class PlantedRule : public testing::TestWithParam<WrongRule> {};

TEST_P(PlantedRule, IsFoundWrongAndTheRealRuleIsNot) {
  const WrongRule& wrong = GetParam();
  Kernels kernels(plugin_file("kernels", "reference"));
  RuleJudge judge(kernels, case_named(wrong.label));
  const Rule planted = judge.with_text(judge.def().rule, wrong.whole, wrong.linear);
  EXPECT_NE(judge.judge(planted, wrong.at), "");
  EXPECT_EQ(judge.judge(judge.rule(), wrong.at), "");
}

INSTANTIATE_TEST_SUITE_P(Rules, PlantedRule, testing::ValuesIn(wrong_rules()),
                         [](const auto& info) { return info.param.name; });

// A vocabulary is cut only with the kernels for shards, which know where theirs starts.
TEST(Rules, AShardOfAVocabularyWithoutItsStartIsFoundWrong) {
  Kernels kernels(plugin_file("kernels", "reference"));
  for (const char* kind : {"embedding", "embedding_wgrad", "cross_entropy_dgrad"}) {
    RuleJudge judge(kernels, case_named(kind));
    const Rule& rule = judge.rule();
    const auto v =
        std::ranges::find(rule.factors, std::string("v"), &Rule::Factor::name) - rule.factors.begin();
    std::vector<Placement> given = partial_on(rule, 0, 0);
    std::vector<std::optional<Placement>> wanted;
    const auto cut = [v](const std::vector<int>& factors, Placement& placement) {
      for (size_t d = 0; d < factors.size(); ++d) {
        if (factors[d] == v) placement.dims[d] = {0};
      }
    };
    for (size_t i = 0; i < given.size(); ++i) cut(rule.inputs[i], given[i]);
    for (const auto& factors : rule.outputs) {
      cut(factors, wanted.emplace_back(Placement::replicated(factors.size())).value());
    }
    EXPECT_EQ(judge.judge(rule, given, wanted), "") << kind;
    judge.forget_starts();
    EXPECT_NE(judge.judge(rule, given, wanted), "") << kind;
  }
}

TEST(Rules, AnOutputWithoutItsReductionIsFoundWrong) {
  Kernels kernels(plugin_file("kernels", "reference"));
  RuleJudge judge(kernels, case_named("linear_wgrad"));
  const std::vector<Placement> given{{{{0}, {}, {}}, {}}, {{{0}, {}, {}}, {}}};
  Typing typing = type_op(judge.rule(), given, {});
  EXPECT_EQ(judge.judge_numbers(typing), "");
  typing.outputs[0].remove_partial(0);
  EXPECT_EQ(judge.judge_numbers(typing), "ranks 0 and 2 should hold the same and do not");
}

TEST(Rules, ATwoAxesShardInTheOtherOrderIsFoundWrong) {
  Kernels kernels(plugin_file("kernels", "reference"));
  RuleJudge judge(kernels, case_named("gelu"));
  Typing typing = type_op(judge.rule(), {{{{0, 1}, {}, {}}, {}}}, {});
  EXPECT_EQ(judge.judge_numbers(typing), "");
  typing.outputs[0].dims[0] = {1, 0};
  EXPECT_NE(judge.judge_numbers(typing), "");
}

TEST(Rules, EveryKindWithARuleHasACase) {
  std::set<std::string> covered;
  for (const OpCase& c : op_cases()) covered.insert(c.kind);
  for (const OpDef& def : op_table()) {
    EXPECT_EQ(covered.contains(def.kind), has_kernel_case(def)) << def.kind;
  }
}

}  // namespace
}  // namespace tenon::test
