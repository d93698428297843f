#include "graph/propagate.h"

#include <gtest/gtest.h>

#include "graph/ops.h"
#include "pins.hpp"

namespace tenon {
namespace {

Mesh mesh() { return Mesh{{{"x", 2}, {"y", 2}, {"z", 2}}}; }

Placement sharded(std::vector<std::vector<AxisId>> dims, std::vector<AxisId> partial = {}) {
  Placement out{std::move(dims), {}};
  for (AxisId axis : partial) out.add_partial(axis, Reduction::sum);
  return out;
}

ValueId leaf(Graph& graph, const std::string& name, const Dims& dims, Placement placement,
             Role role = Role::input) {
  Value value;
  value.name = name;
  value.dims = dims;
  value.role = role;
  value.placement = std::move(placement);
  return graph.add_value(std::move(value));
}

ValueId op(Graph& graph, const std::string& kind, const std::vector<ValueId>& in, const Attrs& attrs = {}) {
  return graph.add_op(kind, in, attrs, Phase::forward, -1, {kind}).value()[0];
}

// The collectives between `from` and `to`: "all_gather x, slice y".
std::string route(const Placement& from, const Placement& to, const Mesh& on = mesh()) {
  Graph graph;
  const Dims dims{{"a", 8}, {"b", 8}};
  const ValueId v = leaf(graph, "v", dims, from);
  const ValueId sum = op(graph, "add", {v, v});
  graph.value(sum).pins = test::pins_of(to, on);
  const auto placed = propagate(graph, on, {});
  if (!placed.ok()) return placed.error().cause;
  if (const Status typed = check_types(placed->graph, on); !typed.ok()) return typed.error().text();
  std::string out;
  for (const Op& o : placed->graph.ops()) {
    if (reshard_of(*o.def) == TransferKind::none) continue;
    out += (out.empty() ? "" : ", ") + std::string(o.def->kind) + " ";
    for (AxisId axis : o.axes) out += on.axes[axis].name;
  }
  return out;
}

TEST(ReshardRoute, EachBasicMoveIsOneCollective) {
  EXPECT_EQ(route(sharded({{}, {}}, {0}), sharded({{}, {}})), "all_reduce x");
  EXPECT_EQ(route(sharded({{}, {}}, {0}), sharded({{0}, {}})), "reduce_scatter x");
  EXPECT_EQ(route(sharded({{0}, {}}), sharded({{}, {}})), "all_gather x");
  EXPECT_EQ(route(sharded({{0}, {}}), sharded({{}, {0}})), "all_to_all x");
  EXPECT_EQ(route(sharded({{}, {}}), sharded({{0}, {}})), "slice x");
  EXPECT_EQ(route(sharded({{0}, {}}), sharded({{0}, {}})), "");
}

TEST(ReshardRoute, OnlyTheInnermostAxisLeavesADim) {
  EXPECT_EQ(route(sharded({{0, 1}, {}}), sharded({{1}, {}})), "all_gather y, all_gather x, slice y");
  EXPECT_EQ(route(sharded({{0, 1}, {}}), sharded({{0}, {1}})), "all_to_all y");
  EXPECT_EQ(route(sharded({{0, 1}, {}}), sharded({{1}, {0}})), "all_gather y, all_to_all x, slice y");
}

TEST(ReshardRoute, PartialsAreScatteredInTheOrderOfTheTarget) {
  EXPECT_EQ(route(sharded({{}, {}}, {0, 1}), sharded({{1, 0}, {}})), "reduce_scatter y, reduce_scatter x");
  EXPECT_EQ(route(sharded({{}, {}}, {0, 1}), sharded({{0}, {}})), "reduce_scatter x, all_reduce y");
}

TEST(ReshardRoute, PartsOfAnAxisMoveTogetherWhereTheyAreUsedAsOne) {
  const Mesh parts{{{"x", 2}, {"y", 2, "yz"}, {"z", 2, "yz"}}};
  const auto over = [&](const Placement& from, const Placement& to) { return route(from, to, parts); };
  EXPECT_EQ(over(sharded({{}, {}}, {1, 2}), sharded({{}, {}})), "all_reduce yz");
  EXPECT_EQ(over(sharded({{}, {}}, {1, 2}), sharded({{0, 1, 2}, {}})), "slice x, reduce_scatter yz");
  EXPECT_EQ(over(sharded({{0, 1, 2}, {}}), sharded({{0}, {}})), "all_gather yz");
  EXPECT_EQ(over(sharded({{0, 1, 2}, {}}), sharded({{0}, {1, 2}})), "all_to_all yz");
  EXPECT_EQ(over(sharded({{}, {}}), sharded({{1, 2}, {}})), "slice yz");
  // One part goes another way, or they are the other way around.
  EXPECT_EQ(over(sharded({{}, {}}, {1, 2}), sharded({{1}, {}})), "reduce_scatter y, all_reduce z");
  EXPECT_EQ(over(sharded({{2, 1}, {}}), sharded({{}, {}})), "all_gather y, all_gather z");
  EXPECT_EQ(over(sharded({{1}, {2}}), sharded({{}, {}})), "all_gather y, all_gather z");
}

// k = x w, whose gradient is a partial sum over y: of both it is made, by an op that sums over what y cuts.
TEST(Propagate, AGradientThatMayBeSummedLateStaysAPartialSum) {
  for (const bool late : {false, true}) {
    SCOPED_TRACE(late);
    Graph graph;
    const ValueId x = leaf(graph, "x", {{"b", 4}, {"s", 4}, {"h", 4}}, sharded({{}, {}, {}}));
    const ValueId w = leaf(graph, "w", {{"o", 4}, {"h", 4}}, sharded({{}, {}}), Role::param);
    const ValueId k = op(graph, "linear", {x, w});
    if (late) graph.value(k).late = {1};
    const ValueId dk = leaf(graph, "dk", {{"b", 4}, {"s", 4}, {"o", 4}}, sharded({{}, {}, {}}, {1}));
    const ValueId dx = op(graph, "linear_dgrad", {dk, w});
    graph.op(graph.value(dx).producer).grad_in = {k, kNone};
    const auto placed = propagate(graph, mesh(), {});
    ASSERT_TRUE(placed.ok());
    EXPECT_EQ(placed->graph.value(placed->map[dx]).placement.is_partial(1), late);
    EXPECT_EQ(placed->graph.ops().size(), late ? 2u : 3u);
  }
}

TEST(Propagate, AReshardIsMadeOnceForAllReaders) {
  Graph graph;
  const ValueId x = leaf(graph, "x", {{"b", 4}, {"s", 4}, {"h", 4}}, sharded({{}, {}, {}}, {0}));
  op(graph, "gelu", {x});
  op(graph, "gelu", {x});
  const auto placed = propagate(graph, mesh(), {});
  ASSERT_TRUE(placed.ok());
  ASSERT_EQ(placed->graph.ops().size(), 3u);
  EXPECT_STREQ(placed->graph.op(0).def->kind, "all_reduce");
  EXPECT_EQ(placed->graph.op(1).in[0], placed->graph.op(2).in[0]);
}

TEST(Propagate, ALeafThatDoesNotDivideIsP010AndNamed) {
  Graph graph;
  leaf(graph, "odd", {{"b", 3}}, sharded({{0}}));
  const auto placed = propagate(graph, mesh(), {});
  ASSERT_FALSE(placed.ok());
  EXPECT_EQ(placed.error().code, "P010");
  EXPECT_EQ(placed.error().cause, "odd: b 3 is not divisible by the 2 parts that S(b)@x asks for");
}

TEST(Propagate, ReplicatedValuesAreReducedInTheEnd) {
  Graph graph;
  const ValueId x = leaf(graph, "x", {{"h", 4}}, sharded({{0}}));
  const ValueId sq = op(graph, "sqnorm", {x});
  const auto placed = propagate(graph, mesh(), {sq});
  ASSERT_TRUE(placed.ok());
  EXPECT_TRUE(placed->graph.value(placed->map[sq]).placement.is_replicated());
  EXPECT_STREQ(placed->graph.ops().back().def->kind, "all_reduce");
  EXPECT_EQ(placed->graph.ops().back().phase, Phase::step);
}

// An update overwrites the parameter itself: the gradient comes to where that is.
TEST(Propagate, AnUpdateKeepsThePlacementOfItsParameter) {
  for (const Placement& at : {sharded({{}}), sharded({{1}}), sharded({{0}})}) {
    Graph graph;
    const ValueId param = leaf(graph, "p", {{"o", 8}}, at, Role::param);
    const ValueId grad = leaf(graph, "g", {{"o", 8}}, sharded({{1}}, {0}));
    Value value;
    value.name = "scale";
    value.dtype = Dtype::f64;
    const ValueId scale = graph.add_value(value);
    const ValueId updated = op(graph, "update", {grad, param, scale});
    const auto placed = propagate(graph, mesh(), {});
    ASSERT_TRUE(placed.ok()) << placed.error().text();
    EXPECT_EQ(placed->graph.ops().back().in[1], placed->map[param]);
    EXPECT_EQ(placed->graph.value(placed->map[updated]).placement, at);
    EXPECT_TRUE(check_types(placed->graph, mesh()).ok());
  }
}

struct Accumulation {
  Graph graph;
  ValueId first = kNone, second = kNone;
};

// Two bias gradients in one chain, of values with these placements.
Accumulation two_bias_gradients(const Placement& a, const Placement& b) {
  Accumulation out;
  const Dims dims{{"b", 8}, {"s", 8}, {"o", 8}};
  const ValueId dy = leaf(out.graph, "dy", dims, a), dz = leaf(out.graph, "dz", dims, b);
  out.first = op(out.graph, "bias_wgrad", {dy});
  out.second = op(out.graph, "bias_wgrad", {dz});
  out.graph.op(1).acc = {out.first};
  return out;
}

TEST(Propagate, AnAccumulationThatAgreesStaysPartial) {
  const Accumulation a = two_bias_gradients(sharded({{0}, {}, {}}, {1}), sharded({{0}, {}, {}}, {1}));
  const auto placed = propagate(a.graph, mesh(), {});
  ASSERT_TRUE(placed.ok());
  EXPECT_EQ(placed->graph.ops().size(), 2u);
  EXPECT_EQ(placed->graph.value(placed->map[a.second]).placement, sharded({{}}, {0, 1}));
}

TEST(Propagate, AnAccumulationLeavesOutTheAxesOnWhichItsOpsDisagree) {
  const Placement batch = sharded({{0}, {}, {}});
  for (const Placement& other :
       {sharded({{0}, {}, {}}, {1}), sharded({{0}, {}, {1}}), sharded({{0, 1}, {}, {}})}) {
    for (const bool swapped : {false, true}) {
      const Accumulation a = swapped ? two_bias_gradients(other, batch) : two_bias_gradients(batch, other);
      const auto placed = propagate(a.graph, mesh(), {});
      ASSERT_TRUE(placed.ok()) << placed.error().text();
      EXPECT_EQ(placed->graph.value(placed->map[a.first]).placement, sharded({{}}, {0}));
      EXPECT_EQ(placed->graph.value(placed->map[a.second]).placement, sharded({{}}, {0}));
      EXPECT_TRUE(check_types(placed->graph, mesh()).ok());
    }
  }
}

TEST(Propagate, AnAccumulationThatPinsForbidIsP002) {
  Accumulation a = two_bias_gradients(sharded({{}, {}, {}}), sharded({{}, {}, {}}));
  a.graph.value(a.second).pins = {{0, size_t{0}, "test"}};
  const auto placed = propagate(a.graph, mesh(), {});
  ASSERT_FALSE(placed.ok());
  EXPECT_EQ(placed.error().code, "P002");
  EXPECT_EQ(placed.error().cause, "bias_wgrad adds S(o)@x to R");
}

// -- why -------------------------------------------------------------------------------------------

ValueId pinned_leaf(Graph& graph, const std::string& name, const Dims& dims, std::vector<Pin> pins,
                    Role role = Role::input) {
  const ValueId id = leaf(graph, name, dims, Placement::replicated(dims.size()), role);
  graph.value(id).pins = std::move(pins);
  return id;
}

const Dims kStream{{"batch", 8}, {"seq", 8}, {"hidden", 8}};

struct Asked {
  std::string kind, value, decider, factor, had_by, wanted_by;
  Reason::Because because;
  bool operator==(const Asked&) const = default;
};

std::vector<Asked> asked_of(const Graph& graph, const std::vector<ValueId>& replicated = {}) {
  const auto placed = propagate(graph, mesh(), replicated);
  if (!placed.ok()) return {};
  const Graph& out = placed->graph;
  std::vector<Asked> all;
  for (const Op& one : out.ops()) {
    if (reshard_of(*one.def) == TransferKind::none) {
      EXPECT_EQ(one.reason, kNone);
      continue;
    }
    const Reason& reason = out.reasons.at(one.reason);
    EXPECT_EQ(reason.had, out.value(reason.value).placement);
    all.push_back({one.def->kind, out.value(reason.value).name,
                   reason.decider == kNone ? "" : out.value(reason.decider).name, reason.factor,
                   reason.had_by.by, reason.wanted_by.by, reason.because});
  }
  return all;
}

TEST(Reason, IsTheWeightThatStaysAndTheStrategiesOfBoth) {
  Graph graph;
  const ValueId x = pinned_leaf(graph, "x", kStream, {{0, size_t{1}, "sequence"}});
  const ValueId w =
      pinned_leaf(graph, "w", {{"out", 8}, {"hidden", 8}}, {{0, size_t{0}, "tensor"}}, Role::param);
  op(graph, "linear", {x, w});
  EXPECT_EQ(
      asked_of(graph),
      (std::vector<Asked>{{"all_gather", "x", "w", "", "sequence", "tensor", Reason::Because::operand}}));
}

TEST(Reason, IsTheFactorThatMustBeWhole) {
  Graph graph;
  const ValueId x = pinned_leaf(graph, "x", kStream, {{0, size_t{2}, "tensor"}});
  const ValueId w = pinned_leaf(graph, "w", {{"hidden", 8}}, {}, Role::param);
  op(graph, "rmsnorm", {x, w}, {{"eps", 1e-5}});
  EXPECT_EQ(asked_of(graph),
            (std::vector<Asked>{{"all_gather", "x", "", "h", "tensor", "", Reason::Because::whole}}));
}

// The sum is partial because both operands of the product are cut, which is said of the first of them.
TEST(Reason, IsThatNoPartialSumIsTaken) {
  Graph graph;
  const ValueId x = pinned_leaf(graph, "x", kStream, {{0, size_t{2}, "tensor"}});
  const ValueId w =
      pinned_leaf(graph, "w", {{"out", 8}, {"hidden", 8}}, {{0, size_t{1}, "tensor"}}, Role::param);
  op(graph, "gelu", {op(graph, "linear", {x, w})});
  EXPECT_EQ(
      asked_of(graph),
      (std::vector<Asked>{{"all_reduce", "linear", "", "", "tensor", "", Reason::Because::no_partial}}));
}

TEST(Reason, IsAPinOfTheValueItself) {
  Graph graph;
  const ValueId x = pinned_leaf(graph, "x", kStream, {{0, size_t{1}, "sequence"}});
  const ValueId y = op(graph, "gelu", {x});
  graph.value(y).pins = {{0, std::nullopt, "whole"}};
  EXPECT_EQ(
      asked_of(graph),
      (std::vector<Asked>{{"all_gather", "gelu", "gelu", "", "sequence", "whole", Reason::Because::pin}}));
}

TEST(Reason, IsThatAllRanksAreTold) {
  Graph graph;
  const ValueId x = pinned_leaf(graph, "x", kStream, {{0, size_t{0}, "data"}});
  const ValueId sq = op(graph, "sqnorm", {x});
  EXPECT_EQ(asked_of(graph, {sq}),
            (std::vector<Asked>{{"all_reduce", "sqnorm", "", "", "data", "", Reason::Because::output}}));
}

TEST(Reason, IsThatAParameterIsUpdatedWhereItIs) {
  Graph graph;
  const ValueId param = pinned_leaf(graph, "p", {{"o", 8}}, {}, Role::param);
  const ValueId grad = pinned_leaf(graph, "g", {{"o", 8}}, {{1, size_t{0}, "data"}});
  Value value;
  value.name = "scale";
  value.dtype = Dtype::f64;
  op(graph, "update", {grad, param, graph.add_value(value)});
  EXPECT_EQ(asked_of(graph),
            (std::vector<Asked>{{"all_gather", "g", "p", "", "data", "", Reason::Because::in_place}}));
}

TEST(Reason, IsThatAnAccumulationAgrees) {
  Graph graph;
  const ValueId dy = pinned_leaf(graph, "dy", kStream, {{0, size_t{0}, "data"}});
  const ValueId dz = pinned_leaf(graph, "dz", kStream, {{0, size_t{0}, "data"}, {1, size_t{2}, "tensor"}});
  const ValueId first = op(graph, "bias_wgrad", {dy});
  op(graph, "bias_wgrad", {dz});
  graph.op(1).acc = {first};
  EXPECT_EQ(asked_of(graph), (std::vector<Asked>{{"all_gather", "dz", "bias_wgrad", "", "tensor", "",
                                                  Reason::Because::accumulation}}));
}

TEST(Reason, IsWhereTheForwardValueWasMade) {
  Graph graph;
  const ValueId y = pinned_leaf(graph, "y", kStream, {});
  const ValueId dy = pinned_leaf(graph, "dy", kStream, {{0, size_t{1}, "sequence"}});
  op(graph, "gelu_dgrad", {dy, y});
  graph.op(0).grad_in = {y, kNone};
  EXPECT_EQ(asked_of(graph),
            (std::vector<Asked>{{"all_gather", "dy", "y", "", "sequence", "", Reason::Because::as_forward}}));
}

// A strategy has moved the forward value since; its gradient follows the op that made it.
TEST(Reason, IsTheForwardValueBeforeItsPinMovedIt) {
  Graph graph;
  const ValueId x = pinned_leaf(graph, "x", kStream, {{0, size_t{2}, "tensor"}});
  const ValueId w =
      pinned_leaf(graph, "w", {{"out", 8}, {"hidden", 8}}, {{0, size_t{1}, "tensor"}}, Role::param);
  const ValueId y = op(graph, "linear", {x, w});
  graph.value(y).pins = {{0, size_t{1}, "sequence"}};
  const ValueId z = pinned_leaf(graph, "z", {{"batch", 8}, {"seq", 8}, {"out", 8}}, {});
  const ValueId dy =
      pinned_leaf(graph, "dy", {{"batch", 8}, {"seq", 8}, {"out", 8}}, {{0, size_t{1}, "sequence"}});
  op(graph, "gelu_dgrad", {dy, z});
  graph.op(1).grad_in = {y, kNone};
  EXPECT_EQ(asked_of(graph),
            (std::vector<Asked>{
                {"reduce_scatter", "linear", "linear", "", "tensor", "sequence", Reason::Because::pin},
                {"all_gather", "dy", "linear", "", "sequence", "tensor", Reason::Because::as_forward}}));
}

// A sum takes partial sums if all of its operands are.
TEST(Reason, IsTheOperandBesideWhichNoPartialSumIsTaken) {
  Graph graph;
  const ValueId x = pinned_leaf(graph, "x", kStream, {{0, size_t{2}, "tensor"}});
  const ValueId w =
      pinned_leaf(graph, "w", {{"hidden", 8}, {"hidden", 8}}, {{0, size_t{1}, "tensor"}}, Role::param);
  const ValueId z = pinned_leaf(graph, "z", kStream, {});
  op(graph, "add", {op(graph, "linear", {x, w}), z});
  EXPECT_EQ(asked_of(graph),
            (std::vector<Asked>{{"all_reduce", "linear", "z", "", "tensor", "", Reason::Because::beside}}));
}

// The first operand gives the batch its axes, and the second loses one that it has more.
TEST(Reason, IsTheOperandThatHasLessOfACut) {
  Graph graph;
  const ValueId x = pinned_leaf(graph, "x", kStream, {{0, size_t{0}, "data"}});
  const ValueId y = pinned_leaf(graph, "y", kStream, {{0, size_t{0}, "data"}, {1, size_t{0}, "more"}});
  op(graph, "add", {x, y});
  EXPECT_EQ(asked_of(graph),
            (std::vector<Asked>{{"all_gather", "y", "x", "", "more", "", Reason::Because::operand}}));
}

}  // namespace
}  // namespace tenon
