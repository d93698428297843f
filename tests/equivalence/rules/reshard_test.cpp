// Reshards: the collectives that propagation inserts between two placements, simulated on the shards of eight
// virtual ranks, must give the shards of the same global value.
#include <gtest/gtest.h>

#include "graph/propagate.h"
#include "graph_interpreter.hpp"
#include "pins.hpp"

namespace tenon::test {
namespace {

constexpr int kPairs = 4'000;

Mesh cube() { return Mesh{{{"x", 2}, {"y", 2}, {"z", 2}}}; }

// Each axis absent, sharding a dim, or partial where `partial` lists it; in any order.
Placement random_placement(Random& random, const std::vector<bool>& partial) {
  Placement out = Placement::replicated(3);
  std::vector<AxisId> axes{0, 1, 2};
  for (size_t i = axes.size(); i > 1; --i) {
    std::swap(axes[i - 1], axes[static_cast<size_t>(below(random, static_cast<int64_t>(i)))]);
  }
  for (AxisId axis : axes) {
    const int64_t choice = below(random, 6);
    if (choice < 3) out.dims[static_cast<size_t>(choice)].push_back(axis);
    if (choice == 3 && partial[axis]) out.add_partial(axis, Reduction::sum);
  }
  return out;
}

std::vector<bool> partials_of(const Placement& placement) {
  return {placement.is_partial(0), placement.is_partial(1), placement.is_partial(2)};
}

ValueId add_leaf(Graph& graph, const std::string& name, const Placement& placement) {
  Value value;
  value.name = name;
  value.dtype = Dtype::f64;
  value.dims = {{"d", 8}, {"e", 8}, {"f", 8}};
  value.role = Role::input;
  value.placement = placement;
  return graph.add_value(std::move(value));
}

ValueId add_sum(Graph& graph, ValueId a, ValueId b) {
  return graph.add_op("add", {a, b}, {}, Phase::forward, -1, {"sum"}).value()[0];
}

class Reshard : public testing::Test {
 protected:
  Reshard() { graph_.real = Dtype::f64; }

  // Propagates, checks the types, runs, and compares `result` with what one rank computes.
  void expect_right(const std::vector<ValueId>& leaves, ValueId result,
                    const std::optional<Placement>& wanted, const std::vector<ValueId>& replicated) {
    auto placed = propagate(graph_, mesh_, replicated);
    ASSERT_TRUE(placed.ok()) << placed.error().text();
    const Status types = check_types(placed->graph, mesh_);
    EXPECT_TRUE(types.ok()) << types.error().text();
    const ValueId end = placed->map[result];
    if (wanted) {
      EXPECT_EQ(placed->graph.value(end).placement, *wanted);
    }
    GraphInterpreter alone(kernels_, graph_);
    MeshInterpreter ranks(kernels_, placed->graph, mesh_, 5);
    for (ValueId leaf : leaves) {
      const Tensor value = random_real(random_, {8, 8, 8});
      alone.set(leaf, value);
      ranks.set(placed->map[leaf], value);
    }
    alone.run();
    ranks.run();
    EXPECT_LE(relative_error(ranks.global(end), alone.value(result)), 1e-12);
    for (const Op& op : placed->graph.ops()) collectives_ += reshard_of(*op.def) != TransferKind::none;
  }

  Kernels kernels_{plugin_file("kernels", "reference")};
  Mesh mesh_ = cube();
  Graph graph_;
  Random random_{20};
  int collectives_ = 0;
};

TEST_F(Reshard, FromAnyPlacementToAnyPinnedOutputKeepsTheValue) {
  for (int i = 0; i < kPairs && !HasFailure(); ++i) {
    graph_ = Graph();
    graph_.real = Dtype::f64;
    const Placement from = random_placement(random_, {true, true, true});
    const Placement to = random_placement(random_, partials_of(from));
    const ValueId leaf = add_leaf(graph_, "v", from);
    const ValueId sum = add_sum(graph_, leaf, leaf);
    graph_.value(sum).pins = pins_of(to, mesh_);
    SCOPED_TRACE(text(from, {}, mesh_) + " -> " + text(to, {}, mesh_));
    expect_right({leaf}, sum, to, {});
  }
  EXPECT_GT(collectives_, kPairs);
  std::cout << "[ CASES    ] " << kPairs << " pairs, " << collectives_ << " collectives\n";
}

TEST_F(Reshard, OfAnOperandToWhatTheOtherOneNeedsKeepsTheValue) {
  for (int i = 0; i < kPairs && !HasFailure(); ++i) {
    graph_ = Graph();
    graph_.real = Dtype::f64;
    const Placement first = random_placement(random_, {true, true, true});
    const Placement second = random_placement(random_, {true, true, true});
    const ValueId a = add_leaf(graph_, "a", first), b = add_leaf(graph_, "b", second);
    const ValueId sum = add_sum(graph_, a, b);
    SCOPED_TRACE(text(first, {}, mesh_) + " + " + text(second, {}, mesh_));
    expect_right({a, b}, sum, std::nullopt, {});
  }
}

TEST_F(Reshard, ToReplicatedKeepsTheValue) {
  for (int i = 0; i < kPairs / 4 && !HasFailure(); ++i) {
    graph_ = Graph();
    graph_.real = Dtype::f64;
    const Placement from = random_placement(random_, {true, true, true});
    const ValueId leaf = add_leaf(graph_, "v", from);
    const ValueId sum = add_sum(graph_, leaf, leaf);
    SCOPED_TRACE(text(from, {}, mesh_));
    expect_right({leaf}, sum, Placement::replicated(3), {sum});
  }
}

TEST_F(Reshard, OfAnOuterAxisUnderAnInnerOneIsFoundWrongByNumbersAndByTypes) {
  const ValueId leaf = add_leaf(graph_, "v", Placement{{{0, 1}, {}, {}}, {}});
  Value gathered = graph_.value(leaf);
  gathered.name = "gathered";
  gathered.placement = Placement{{{1}, {}, {}}, {}};
  const ValueId out = graph_.add_value(gathered);
  graph_.append(Op{find_op("all_gather"), {leaf}, {out}, {}, Phase::forward, -1, {}, {0}, 0, {}, {}});
  MeshInterpreter ranks(kernels_, graph_, mesh_, 5);
  const Tensor value = random_real(random_, {8, 8, 8});
  ranks.set(leaf, value);
  ranks.run();
  EXPECT_GT(relative_error(ranks.global(out), value), 0.1);
  const Status types = check_types(graph_, mesh_);
  ASSERT_FALSE(types.ok());
  EXPECT_EQ(types.error().code, "V001");
}

// Moving the outer of two axes to another dim tears the blocks apart as well.
TEST_F(Reshard, AnAllToAllOfAnOuterAxisIsFoundWrongByNumbersAndByTypes) {
  const ValueId leaf = add_leaf(graph_, "v", Placement{{{0, 1}, {}, {}}, {}});
  Value moved = graph_.value(leaf);
  moved.name = "moved";
  moved.placement = Placement{{{1}, {0}, {}}, {}};
  const ValueId out = graph_.add_value(moved);
  graph_.append(Op{find_op("all_to_all"), {leaf}, {out}, {}, Phase::forward, -1, {}, {0}, 0, {}, {}});
  MeshInterpreter ranks(kernels_, graph_, mesh_, 5);
  const Tensor value = random_real(random_, {8, 8, 8});
  ranks.set(leaf, value);
  ranks.run();
  EXPECT_GT(relative_error(ranks.global(out), value), 0.1);
  EXPECT_FALSE(check_types(graph_, mesh_).ok());
}

}  // namespace
}  // namespace tenon::test
