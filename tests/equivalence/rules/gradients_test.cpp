// Reverse mode through whole models against finite differences of the loss, in double.
#include <gtest/gtest.h>

#include "graph/autodiff.h"
#include "small_models.hpp"

namespace tenon::test {
namespace {

// A model with its backward, ready to run on one rank.
class Model {
 public:
  explicit Model(const std::string& name)
      : forward_(small_forward(name)), leaves_(differentiate(forward_.graph, forward_.loss_op).value()) {}

  Graph& graph() { return forward_.graph; }
  size_t num_leaves() const { return leaves_.size(); }

  // Largest relative difference between a gradient and finite differences, over all parameters. A tensor's
  // scale is its largest element, or a thousandth of the largest of all (some gradients are 0 in theory).
  double worst_error(size_t every = 1) {
    GraphInterpreter interpreter(kernels_, forward_.graph);
    interpreter.set(small_leaves(forward_, 31));
    interpreter.run();
    std::map<ValueId, Tensor> grads;
    double largest = 0;
    for (const LeafGrad& leaf : leaves_) {
      grads[leaf.param] = interpreter.value(leaf.grad);
      largest = std::max(largest, max_abs(grads[leaf.param]));
    }
    double worst = 0;
    for (const auto& [param, grad] : grads) {
      const double scale = std::max(max_abs(grad), 1e-3 * largest);
      for (int64_t i = 0; i < grad.size(); i += static_cast<int64_t>(every)) {
        worst = std::max(worst, std::abs(finite_difference(interpreter, param, i) - grad.get(i)) / scale);
      }
    }
    return worst;
  }

 private:
  static double max_abs(const Tensor& tensor) {
    double out = 0;
    for (int64_t i = 0; i < tensor.size(); ++i) out = std::max(out, std::abs(tensor.get(i)));
    return out;
  }

  double loss_with(GraphInterpreter& interpreter, ValueId param, int64_t i, double x) {
    interpreter.value(param).set(i, x);
    interpreter.run(0, forward_.graph.value(forward_.loss).producer + 1);
    return interpreter.value(forward_.loss).get(0);
  }

  // Central, fourth order: the error is about h^4 from the formula and 1e-16 / h from rounding.
  double finite_difference(GraphInterpreter& interpreter, ValueId param, int64_t i) {
    constexpr double h = 1e-3;
    const double x = interpreter.value(param).get(i);
    const double near = loss_with(interpreter, param, i, x + h) - loss_with(interpreter, param, i, x - h);
    const double far =
        loss_with(interpreter, param, i, x + 2 * h) - loss_with(interpreter, param, i, x - 2 * h);
    interpreter.value(param).set(i, x);
    return (8 * near - far) / (12 * h);
  }

  Kernels kernels_{plugin_file("kernels", "reference")};
  ForwardGraph forward_;
  std::vector<LeafGrad> leaves_;
};

constexpr double kTolerance = 1e-6;

TEST(Gradients, OfAnMlpAreThoseOfFiniteDifferences) { EXPECT_LE(Model("mlp").worst_error(), kTolerance); }

TEST(Gradients, OfAGpt2WithTiedEmbeddingAndDropoutAreThoseOfFiniteDifferences) {
  Model model("gpt2");
  EXPECT_EQ(model.num_leaves(), 4u + 2u * 16u);
  EXPECT_LE(model.worst_error(), kTolerance);
}

TEST(Gradients, OfALlamaWithGroupedHeadsAreThoseOfFiniteDifferences) {
  EXPECT_LE(Model("llama").worst_error(), kTolerance);
}

TEST(Gradients, OfAMixtureOfExpertsAreThoseOfFiniteDifferences) {
  Model model("moe");
  EXPECT_EQ(model.num_leaves(), 2u + 2u * 4u);
  EXPECT_LE(model.worst_error(), kTolerance);
}

// The comparison sees what it should see: each fault is planted into the backward graph.
Op& backward_op(Graph& graph, const std::string& kind) {
  for (OpId id = static_cast<OpId>(graph.ops().size()); id-- > 0;) {
    if (graph.op(id).phase != Phase::forward && kind == graph.op(id).def->kind) return graph.op(id);
  }
  throw std::logic_error("no backward " + kind);
}

TEST(Gradients, ARotationInTheWrongSenseIsFoundWrong) {
  Model model("llama");
  SharedAttrs& attrs = backward_op(model.graph(), "rope").attrs;
  attrs = attrs.with("inverse", int64_t{0});
  EXPECT_GT(model.worst_error(7), 1e-3);
}

TEST(Gradients, AnotherDropoutMaskInTheBackwardIsFoundWrong) {
  Model model("gpt2");
  SharedAttrs& attrs = backward_op(model.graph(), "dropout").attrs;
  attrs = attrs.with("key", int64_t{5});
  EXPECT_GT(model.worst_error(7), 1e-3);
}

TEST(Gradients, ATiedParameterThatForgetsOneUseIsFoundWrong) {
  Model model("gpt2");
  Graph& graph = model.graph();
  int accumulating = 0;
  for (OpId id = 0; id < graph.ops().size(); ++id) {
    accumulating += !graph.op(id).acc.empty();
    graph.op(id).acc.clear();
  }
  EXPECT_EQ(accumulating, 1);
  EXPECT_GT(model.worst_error(7), 1e-3);
}

TEST(Gradients, AnAuxiliaryLossWithoutItsGradientIsFoundWrong) {
  Model model("moe");
  SharedAttrs& attrs = backward_op(model.graph(), "route_topk_dgrad").attrs;
  attrs = attrs.with("aux", 0.0);
  EXPECT_GT(model.worst_error(7), 1e-3);
}

TEST(Gradients, ASwappedOperandOfAWeightGradientIsFoundWrong) {
  Model model("mlp");
  Op& op = backward_op(model.graph(), "gelu_dgrad");
  std::swap(op.in[0], op.in[1]);
  EXPECT_GT(model.worst_error(7), 1e-3);
}

}  // namespace
}  // namespace tenon::test
