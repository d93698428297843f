// Whole models on a 2x2 mesh: what propagation places passes check_types() and computes the gradients of one
// rank; planted faults are refused.
#include <gtest/gtest.h>

#include "graph/autodiff.h"
#include "graph/propagate.h"
#include "small_models.hpp"

namespace tenon::test {
namespace {

constexpr AxisId kData = 0, kTensor = 1;

Mesh mesh() { return Mesh{{{"dp", 2}, {"tp", 2}}}; }

void pin(Graph& graph, ValueId id, const std::string& dim, AxisId axis) {
  Value& value = graph.value(id);
  for (size_t d = 0; d < value.dims.size(); ++d) {
    if (value.dims[d].name != dim) continue;
    if (std::ranges::count(value.pins, axis, &Pin::axis) == 0) value.pins.push_back({axis, d, "test"});
  }
}

// A model with backward, placed on the mesh.
class Placed {
 public:
  // `annotate` pins values of the forward graph.
  Placed(const std::string& name, const std::function<void(ForwardGraph&)>& annotate)
      : forward_(small_forward(name)) {
    for (ValueId id : forward_.graph.with_role(Role::input)) pin(forward_.graph, id, "batch", kData);
    annotate(forward_);
    leaves_ = differentiate(forward_.graph, forward_.loss_op).value();
    std::vector<ValueId> replicated{forward_.loss, forward_.count};
    for (const LeafGrad& leaf : leaves_) {
      // sqnorm stands for the reader that accepts no partial.
      squares_.push_back(
          forward_.graph.add_op("sqnorm", {leaf.grad}, {}, Phase::step, -1, {"sq"}).value()[0]);
      replicated.push_back(squares_.back());
    }
    placed_.emplace(propagate(forward_.graph, mesh_, replicated));
  }

  Result<PlacedGraph>& placed() { return *placed_; }
  Graph& graph() { return placed_->value().graph; }
  const Mesh& mesh() const { return mesh_; }
  Status check() const { return check_types(placed_->value().graph, mesh_); }

  // Largest relative error of loss, count and all gradients against one rank.
  double worst_error(Kernels& kernels) {
    GraphInterpreter alone(kernels, forward_.graph);
    MeshInterpreter ranks(kernels, graph(), mesh_, 3);
    for (const auto& [id, tensor] : small_leaves(forward_, 31)) {
      alone.set(id, tensor);
      ranks.set(placed_->value().map[id], tensor);
    }
    alone.run();
    ranks.run();
    std::vector<ValueId> judged = squares_;
    judged.push_back(forward_.loss);
    judged.push_back(forward_.count);
    double worst = 0;
    for (const LeafGrad& leaf : leaves_) judged.push_back(leaf.grad);
    for (ValueId id : judged) {
      const Tensor got = ranks.global(placed_->value().map[id], 1e-9);
      for (int64_t i = 0; i < got.size(); ++i) {
        worst = std::max(worst, std::abs(got.get(i) - alone.value(id).get(i)));
      }
    }
    return worst;
  }

 private:
  Mesh mesh_ = tenon::test::mesh();
  ForwardGraph forward_;
  std::vector<LeafGrad> leaves_;
  std::vector<ValueId> squares_;
  std::optional<Result<PlacedGraph>> placed_;
};

void pin_params(ForwardGraph& forward, const std::vector<std::string>& dims, bool vectors) {
  for (ValueId id : forward.graph.with_role(Role::param)) {
    for (const std::string& dim : dims) {
      if (vectors || !forward.graph.value(id).name.ends_with(".bias")) pin(forward.graph, id, dim, kTensor);
    }
  }
}

void tensor_parallel(ForwardGraph& forward) { pin_params(forward, {"group", "ffn"}, true); }

int count_ops(const Graph& graph, const std::string& kind) {
  int out = 0;
  for (const Op& op : graph.ops()) out += kind == op.def->kind;
  return out;
}

class WholeModel : public testing::TestWithParam<const char*> {
 protected:
  void expect_right(const std::function<void(ForwardGraph&)>& annotate) {
    Placed model(GetParam(), annotate);
    ASSERT_TRUE(model.placed().ok()) << model.placed().error().text();
    const Status types = model.check();
    ASSERT_TRUE(types.ok()) << types.error().text();
    EXPECT_LE(model.worst_error(kernels_), 1e-9);  // absolute; gradients are of the order of 1
  }
  Kernels kernels_{plugin_file("kernels", "reference")};
};

TEST_P(WholeModel, IsRightDataParallel) {
  expect_right([](ForwardGraph&) {});
}
TEST_P(WholeModel, IsRightWithHeadsAndFfnOverAnAxis) { expect_right(tensor_parallel); }
TEST_P(WholeModel, IsRightWithHeadsAndFfnOverAnAxisAndBiasesLeftAlone) {
  expect_right([](ForwardGraph& forward) { pin_params(forward, {"group", "ffn"}, false); });
}
TEST_P(WholeModel, IsRightWithFfnAlone) {
  expect_right([](ForwardGraph& forward) { pin_params(forward, {"ffn"}, true); });
}
TEST_P(WholeModel, IsRightWithHeadsAlone) {
  expect_right([](ForwardGraph& forward) { pin_params(forward, {"group"}, true); });
}
TEST_P(WholeModel, IsRightWithHiddenOverAnAxis) {
  expect_right([](ForwardGraph& forward) { pin_params(forward, {"hidden"}, true); });
}
TEST_P(WholeModel, IsRightWithTheHeadsVocabularyOverAnAxis) {
  expect_right([](ForwardGraph& forward) { pin_params(forward, {"vocab"}, true); });
}

TEST_P(WholeModel, IsRightWithExpertsOverTheBatchAxis) {
  expect_right([](ForwardGraph& forward) {
    for (ValueId id : forward.graph.with_role(Role::param)) pin(forward.graph, id, "expert", kData);
  });
}

TEST_P(WholeModel, IsRightForRandomPins) {
  Random random(41);
  constexpr int kTries = 60;
  for (int i = 0; i < kTries && !HasFailure(); ++i) {
    Placed model(GetParam(), [&random](ForwardGraph& forward) {
      for (ValueId id : forward.graph.with_role(Role::param)) {
        for (AxisId axis : {kData, kTensor}) {
          const Dims& dims = forward.graph.value(id).dims;
          const auto d = static_cast<size_t>(below(random, static_cast<int64_t>(dims.size()) + 1));
          if (d < dims.size() && dims[d].size % 4 == 0)
            pin(forward.graph, id, std::string(dims[d].name), axis);
        }
      }
    });
    ASSERT_TRUE(model.placed().ok()) << model.placed().error().text();
    const Status types = model.check();
    EXPECT_TRUE(types.ok()) << types.error().text();
    EXPECT_LE(model.worst_error(kernels_), 1e-9);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, WholeModel, testing::Values("mlp", "gpt2", "llama", "moe"),
                         [](const auto& info) { return std::string(info.param); });

// Faults planted into a placed gpt2, or into a graph of one op. Each must be refused, and say where.
class Fault : public testing::Test {
 protected:
  Graph& graph() { return model_.graph(); }
  Value& value(ValueId id) { return graph().value(id); }

  void expect_refused(const std::string& cause) {
    const Status status = model_.check();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, "V001");
    EXPECT_EQ(status.error().cause, cause);
  }
  // The first op of a kind whose first output has this name; "" for any.
  Op& op(const std::string& kind, const std::string& output) {
    for (OpId id = 0; id < graph().ops().size(); ++id) {
      Op& found = graph().op(id);
      if (kind == found.def->kind && (output.empty() || value(found.out[0]).name == output)) return found;
    }
    throw std::logic_error("no " + kind + " " + output);
  }
  // Lets all readers of the op's output read its input instead.
  void bypass(const Op& removed) {
    const ValueId from = removed.out[0], to = removed.in[0];
    for (OpId id = 0; id < graph().ops().size(); ++id) {
      for (ValueId& in : graph().op(id).in) in = in == from ? to : in;
    }
  }

  Placed model_{"gpt2", tensor_parallel};
};

TEST_F(Fault, NoneIsAccepted) {
  ASSERT_TRUE(model_.placed().ok());
  EXPECT_TRUE(model_.check().ok());
  EXPECT_GT(count_ops(graph(), "all_reduce"), 4);
}

TEST_F(Fault, ARemovedAllReduceInTheForwardIsRefused) {
  bypass(op("all_reduce", "0/p0 as S(batch)@dp"));
  expect_refused("bias_add: '0/p0' is S(batch)@dp P@tp, allowed: S(batch)@dp");
}

TEST_F(Fault, ARemovedGradientReductionIsRefused) {
  bypass(op("all_reduce", "ln_f.weight.grad as R"));
  expect_refused("sqnorm: 'ln_f.weight.grad' is P@dp, allowed: R");
}

TEST_F(Fault, AnOverwrittenPlacementIsRefused) {
  value(op("gelu", "0/a").out[0]).placement = Placement::replicated(3);
  expect_refused("gelu: '0/a' is R, allowed: S(batch)@dp S(ffn)@tp");
}

TEST_F(Fault, AReductionClaimedToBeDoneIsRefused) {
  value(op("linear_wgrad", "h.1.proj.weight.grad").out[0]).placement.remove_partial(kData);
  expect_refused("linear_wgrad: 'h.1.proj.weight.grad' is S(ffn)@tp, allowed: S(ffn)@tp P@dp");
}

TEST_F(Fault, APartialFedToGeluIsRefused) {
  Op& gelu = op("gelu", "0/a");
  Value partial = value(gelu.in[0]);
  partial.name = "partial";
  partial.producer = kNone;
  partial.placement = Placement{{{kData}, {}, {}}, {{kTensor, Reduction::sum}}};
  gelu.in[0] = graph().add_value(partial);
  expect_refused("gelu: 'partial' is S(batch)@dp P@tp, allowed: S(batch)@dp S(ffn)@tp");
}

TEST_F(Fault, AnAccumulatorOfAnotherPlacementIsRefused) {
  Op& wgrad = op("embedding_wgrad", "wte.weight.grad");
  ASSERT_EQ(wgrad.acc.size(), 1u);
  Value other = value(wgrad.acc[0]);
  other.name = "other";
  other.producer = kNone;
  other.placement = Placement::replicated(2);
  wgrad.acc[0] = graph().add_value(other);
  expect_refused("embedding_wgrad: 'other' is R, allowed: P@dp");
}

TEST_F(Fault, AnAllReduceOverAnotherAxisIsRefused) {
  op("all_reduce", "0/p0 as S(batch)@dp").axes = {kData};
  expect_refused(
      "all_reduce: '0/p0' is S(batch)@dp P@tp, allowed: what all_reduce over dp can turn into S(batch)@dp");
}

TEST_F(Fault, ACollectiveWithoutAnAxisIsRefused) {
  op("all_reduce", "0/p0 as S(batch)@dp").axes = {};
  expect_refused("all_reduce runs over 0 axes, allowed: one of the mesh, or parts of one");
}

TEST_F(Fault, APlacementThatDoesNotFitItsValueIsRefused) {
  ValueId a = op("gelu", "0/a").out[0];
  const std::string cause = "gelu: '0/a' has no placement on dp 2 x tp 2 that fits [batch 4, seq 4, ffn 16]";
  value(a).placement = Placement();
  expect_refused(cause);
  value(a).placement = Placement{{{kData}, {}, {kData}}, {}};
  expect_refused(cause);
  value(a).placement = Placement{{{7}, {}, {}}, {}};
  expect_refused(cause);
}

}  // namespace
}  // namespace tenon::test
