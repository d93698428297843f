#include "graph/placement.h"

#include <gtest/gtest.h>

#include "base/assert.h"
#include "graph/ops.h"

namespace tenon {
namespace {

using testing::Test;

Mesh mesh() { return Mesh{{{"dp", 2}, {"cp", 3}, {"tp", 4}}}; }

Placement sharded(std::vector<std::vector<AxisId>> dims, std::vector<AxisId> partial = {}) {
  Placement out{std::move(dims), {}};
  for (AxisId axis : partial) out.add_partial(axis, Reduction::sum);
  return out;
}

TEST(MeshTest, RanksAreMixedRadixNumbersMajorAxisFirst) {
  const Mesh m = mesh();
  EXPECT_EQ(m.world(), 24);
  EXPECT_EQ(m.rank({1, 2, 3}), 23);
  EXPECT_EQ(m.rank({1, 0, 1}), 13);
  for (int64_t rank = 0; rank < m.world(); ++rank) EXPECT_EQ(m.rank(m.coordinate(rank)), rank);
  EXPECT_EQ(m.text(), "dp 2 x cp 3 x tp 4");
}

TEST(MeshTest, AGroupFixesEveryOtherCoordinateAndComesInRankOrder) {
  const Mesh m = mesh();
  EXPECT_EQ(m.group(13, {2}), (std::vector<int32_t>{12, 13, 14, 15}));
  EXPECT_EQ(m.group(13, {0}), (std::vector<int32_t>{1, 13}));
  EXPECT_EQ(m.group(0, {2, 0}), (std::vector<int32_t>{0, 1, 2, 3, 12, 13, 14, 15}));
  EXPECT_EQ(m.group(5, {}), (std::vector<int32_t>{5}));
  EXPECT_EQ(m.size({0, 2}), 8);
}

TEST(MeshTest, AxesAreFoundByName) {
  EXPECT_EQ(mesh().find("cp"), std::optional<AxisId>(1));
  EXPECT_EQ(mesh().find("pp"), std::nullopt);
}

TEST(MeshTest, AnAxisIsSplitWhereItsAtomsDoNotEndThere) {
  const Mesh tp{{{"dp", 2}, {"tp", 8}, {"pp", 3}}};
  const auto split = tp.split("tp", 2);
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->text(), "dp 2 x tp_out 2 x tp_in 4 x pp 3");
  EXPECT_EQ(split->find_all("tp"), (std::vector<AxisId>{1, 2}));
  EXPECT_EQ(split->axes[2].part_of, "tp");
  for (int64_t rank = 0; rank < tp.world(); ++rank)
    EXPECT_EQ(split->group(rank, {1, 2}), tp.group(rank, {1})) << rank;
  EXPECT_EQ(split->split("tp", 2)->text(), split->text());
  const auto twice = split->split("tp", 4);
  EXPECT_EQ(twice->text(), "dp 2 x tp_out 2 x tp_in_out 2 x tp_in_in 2 x pp 3");
  EXPECT_EQ(twice->axes[3].part_of, "tp");
  EXPECT_EQ(twice->find_all("tp").size(), 3u);
  EXPECT_EQ(tp.split("tp", 1)->text(), tp.text());
  EXPECT_EQ(tp.split("tp", 8)->text(), tp.text());
  for (const int64_t outer : {3, 16}) EXPECT_FALSE(tp.split("tp", outer).has_value()) << outer;
  const Mesh named{{{"tp", 4}, {"tp_in", 2}}};
  std::string taken;
  EXPECT_FALSE(named.split("tp", 3, &taken).has_value());
  EXPECT_EQ(taken, "") << "its size is why";
  EXPECT_FALSE(named.split("tp", 2, &taken).has_value());
  EXPECT_EQ(taken, "tp_in");
}

TEST(PlacementTest, TextNamesDimsAxesInOrderAndPartials) {
  const Dims dims{{"batch", 8}, {"hidden", 12}};
  EXPECT_EQ(text(sharded({{2, 0}, {}}, {1}), dims, mesh()), "S(batch)@tp,dp P@cp");
  EXPECT_EQ(text(Placement::replicated(2), dims, mesh()), "R");
  Placement maximum = Placement::replicated(2);
  maximum.add_partial(0, Reduction::max);
  EXPECT_EQ(text(maximum, dims, mesh()), "Pmax@dp");
}

TEST(PlacementTest, PartialsAreASetSortedByAxis) {
  Placement p = sharded({{}}, {2, 0, 2});
  EXPECT_EQ(p.partials.size(), 2u);
  EXPECT_EQ(p.partials[0].axis, 0u);
  EXPECT_TRUE(p.is_partial(2));
  EXPECT_FALSE(p.is_replicated());
  p.remove_partial(2);
  p.remove_partial(0);
  EXPECT_TRUE(p.is_replicated());
}

TEST(PlacementTest, LocalDimsDivideByTheProductOfTheAxes) {
  const auto local = local_dims({{"batch", 16}, {"hidden", 12}}, sharded({{0, 2}, {1}}), mesh());
  ASSERT_TRUE(local.ok());
  EXPECT_EQ(*local, (Dims{{"batch", 2}, {"hidden", 4}}));
}

TEST(PlacementTest, ADimThatDoesNotDivideIsP010WithTheNearestSizes) {
  const auto local = local_dims({{"heads", 10}}, sharded({{2}}), mesh());
  ASSERT_FALSE(local.ok());
  EXPECT_EQ(local.error().code, "P010");
  EXPECT_EQ(local.error().cause, "heads 10 is not divisible by the 4 parts that S(heads)@tp asks for");
  EXPECT_EQ(local.error().fix, "nearest: 8 or 12");
  EXPECT_EQ(local_dims({{"heads", 3}}, sharded({{2}}), mesh()).error().fix, "nearest: 4");
}

// -- rules ------------------------------------------------------------------------------------------

TEST(RuleTest, VariadicPartsTakeTheRanksOfTheOperands) {
  const auto rule = instantiate_rule("b s k.., o.. k.. -> b s o..", "", "0|1", {3, 4});
  ASSERT_TRUE(rule.ok());
  std::string names;
  for (const auto& factor : rule->factors) names += factor.name + " ";
  EXPECT_EQ(names, "b s k0 o0 o1 o2 ");
  EXPECT_EQ(rule->outputs[0], (std::vector<int>{0, 1, 3, 4, 5}));
  EXPECT_EQ(rule->factors[2].kind, Rule::Kind::sum);
  EXPECT_EQ(rule->factors[3].kind, Rule::Kind::parallel);
  EXPECT_EQ(rule->linear, (std::vector<std::vector<int>>{{0}, {1}}));
}

TEST(RuleTest, WholeFactorsStayWholeEvenWhereTheyAreSummed) {
  const auto rule = instantiate_rule("b s, v h -> b s h", "v", "1", {2, 2});
  ASSERT_TRUE(rule.ok());
  EXPECT_EQ(rule->factors[2].name, "v");
  EXPECT_EQ(rule->factors[2].kind, Rule::Kind::whole);
}

TEST(RuleTest, RanksThatDoNotFitAreG001) {
  for (const std::vector<size_t>& ranks : {std::vector<size_t>{1, 2}, {3}, {3, 0}, {3, 2, 1}}) {
    const auto rule = instantiate_rule("b s k.., o.. k.. -> b s o..", "", "", ranks);
    ASSERT_FALSE(rule.ok());
    EXPECT_EQ(rule.error().code, "G001");
    EXPECT_EQ(rule.error().cause, "the operands do not fit the rule 'b s k.., o.. k.. -> b s o..'");
  }
}

TEST(RuleTest, EveryRowOfTheTableIsWellFormed) {
  for (const OpDef& def : op_table()) {
    const std::string rule = def.rule;
    const auto commas = [](const std::string& text) { return std::count(text.begin(), text.end(), ','); };
    const size_t arrow = rule.find("->");
    ASSERT_NE(arrow, std::string::npos) << def.kind;
    EXPECT_EQ(commas(rule.substr(0, arrow)) + 1, std::max<ptrdiff_t>(std::ssize(def.in), 1)) << def.kind;
    EXPECT_EQ(commas(rule.substr(arrow)) + 1, std::ssize(def.out)) << def.kind;
    EXPECT_LT(def.inplace_input, std::ssize(def.in)) << def.kind;
  }
}

// -- typing -----------------------------------------------------------------------------------------

Typing type(const std::string& kind, const std::vector<Placement>& given,
            const std::vector<std::optional<Placement>>& wanted = {}, const std::vector<bool>& stays = {}) {
  std::vector<size_t> ranks;
  for (const Placement& placement : given) ranks.push_back(placement.dims.size());
  return type_op(rule_of(*find_op(kind), ranks).value(), given, wanted, stays);
}

TEST(TypingTest, AShardedContractionGivesAPartial) {
  const Typing t = type("linear", {sharded({{0}, {}, {2}}), sharded({{}, {2}})});
  EXPECT_EQ(t.inputs[0], sharded({{0}, {}, {2}}));
  EXPECT_EQ(t.outputs[0], sharded({{0}, {}, {}}, {2}));
}

TEST(TypingTest, AReplicatedOperandIsSlicedToWhatTheOtherShards) {
  const Typing t = type("linear", {sharded({{0}, {}, {2}}), sharded({{}, {}})});
  EXPECT_EQ(t.inputs[1], sharded({{}, {2}}));
}

TEST(TypingTest, TheFirstOperandWinsADisagreement) {
  const Typing t = type("add", {sharded({{0}, {}}), sharded({{}, {0}})});
  EXPECT_EQ(t.inputs[1], sharded({{0}, {}}));
  EXPECT_EQ(t.outputs[0], sharded({{0}, {}}));
}

TEST(TypingTest, AnAxisShardsOneFactorOnly) {
  const Typing t = type("linear", {sharded({{2}, {}, {}}), sharded({{2}, {}})});
  EXPECT_EQ(t.inputs[1], sharded({{}, {}}));
  EXPECT_EQ(t.outputs[0], sharded({{2}, {}, {}}));
}

TEST(TypingTest, APinnedOutputShardsAFreeFactor) {
  const Typing t = type("linear", {sharded({{}, {}, {}}), sharded({{}, {}})}, {sharded({{}, {}, {2}})});
  EXPECT_EQ(t.inputs[1], sharded({{2}, {}}));
  EXPECT_EQ(t.outputs[0], sharded({{}, {}, {2}}));
}

TEST(TypingTest, APartialPassesALinearOpAndNoOther) {
  EXPECT_EQ(type("linear", {sharded({{0}, {}, {}}, {2}), sharded({{}, {}})}).outputs[0],
            sharded({{0}, {}, {}}, {2}));
  const Typing t = type("gelu", {sharded({{0}, {}, {}}, {2})});
  EXPECT_EQ(t.inputs[0], sharded({{0}, {}, {}}));
  EXPECT_EQ(t.outputs[0], sharded({{0}, {}, {}}));
}

TEST(TypingTest, AddTakesTwoPartialsOrNone) {
  EXPECT_EQ(type("add", {sharded({{}}, {2}), sharded({{}}, {2})}).outputs[0], sharded({{}}, {2}));
  EXPECT_EQ(type("add", {sharded({{}}, {2}), sharded({{}})}).inputs[0], sharded({{}}));
}

TEST(TypingTest, APartialOverAnAxisThatShardsTheOtherOperandIsReduced) {
  const Typing t = type("linear", {sharded({{}, {}, {}}, {2}), sharded({{2}, {}})});
  EXPECT_EQ(t.inputs[0], sharded({{}, {}, {}}));
  EXPECT_EQ(t.outputs[0], sharded({{}, {}, {2}}));
}

TEST(TypingTest, TheLossIsPartialOverEveryAxisThatShardsTokens) {
  const Typing t = type("cross_entropy", {sharded({{0}, {1}, {2}}), sharded({{}, {}})});
  EXPECT_EQ(t.inputs[0], sharded({{0}, {1}, {2}}));  // it exchanges over the vocabulary itself
  EXPECT_EQ(t.inputs[1], sharded({{0}, {1}}));
  EXPECT_EQ(t.outputs[0], sharded({}, {0, 1}));
  EXPECT_EQ(t.outputs[1], sharded({}, {0, 1}));
  EXPECT_EQ(t.outputs[2], sharded({{0}, {1}}));
}

TEST(TypingTest, GradientsOfKeysArePartialOverAnAxisOfTheQueryHeads) {
  const Placement q = sharded({{}, {}, {}, {2}, {}}), kv = sharded({{}, {}, {}, {}}), pos = sharded({{}, {}});
  const Typing t = type("attention_dgrad", {q, q, kv, kv, q, sharded({{}, {}, {2}, {}}), pos, pos});
  EXPECT_EQ(t.outputs[0], q);
  EXPECT_EQ(t.outputs[1], sharded({{}, {}, {}, {}}, {2}));
}

TEST(TypingTest, ExpertsTakeTheirAxisFromTheBatchAndLeaveItTheOthers) {
  const Typing t =
      type("grouped_linear", {sharded({{0, 1}, {}, {}, {}, {}}), sharded({{0}, {}, {}})}, {}, {false, true});
  EXPECT_EQ(t.inputs[0], sharded({{1}, {}, {0}, {}, {}}));
  EXPECT_EQ(t.outputs[0], sharded({{1}, {}, {0}, {}, {}}));
}

TEST(MeshDeathTest, a_rank_outside_is_a_fault_of_the_caller) {
  const Mesh mesh{{{"dp", 2}, {"tp", 2}}};
  EXPECT_EQ(mesh.coordinate(3), (std::vector<int64_t>{1, 1}));
  if (!kAssertions) return;
  EXPECT_DEATH(mesh.coordinate(4), "placement.cpp:[0-9]+: this must hold: .*rank < world");
}

}  // namespace
}  // namespace tenon
