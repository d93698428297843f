#include "graph/autodiff.h"

#include <gtest/gtest.h>

#include "graph/ops.h"

namespace tenon {
namespace {

class Differentiate : public testing::Test {
 protected:
  ValueId leaf(const std::string& name, Dtype dtype, const Dims& dims, Role role) {
    Value value;
    value.name = name;
    value.dtype = dtype;
    value.dims = dims;
    value.role = role;
    return graph_.add_value(std::move(value));
  }
  ValueId param(const std::string& name, const Dims& dims) {
    return leaf(name, Dtype::f32, dims, Role::param);
  }
  std::vector<ValueId> ops(const std::string& kind, const std::vector<ValueId>& in, const Attrs& attrs = {}) {
    return graph_.add_op(kind, in, attrs, Phase::forward, -1, {kind}).value();
  }
  ValueId op(const std::string& kind, const std::vector<ValueId>& in, const Attrs& attrs = {}) {
    return ops(kind, in, attrs)[0];
  }
  Result<std::vector<LeafGrad>> differentiate_loss_of(ValueId logits) {
    const ValueId loss = op("cross_entropy", {logits, targets_});
    first_backward_ = graph_.value(loss).producer + 1;
    return differentiate(graph_, graph_.value(loss).producer);
  }
  std::string backward_kinds() const {
    std::string out;
    for (size_t i = first_backward_; i < graph_.ops().size(); ++i) {
      out += (out.empty() ? "" : " ") + std::string(graph_.ops()[i].def->kind);
    }
    return out;
  }
  void expect_error(const Result<std::vector<LeafGrad>>& result, const std::string& code,
                    const std::string& cause) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, code);
    EXPECT_EQ(result.error().cause, cause);
  }

  Graph graph_;
  Dims tokens_dims_{{"batch", 2}, {"seq", 3}};
  ValueId tokens_ = leaf("tokens", Dtype::i32, tokens_dims_, Role::input);
  ValueId targets_ = leaf("targets", Dtype::i32, tokens_dims_, Role::input);
  ValueId wte_ = param("wte", {{"vocab", 8}, {"hidden", 4}});
  size_t first_backward_ = 0;
};

TEST_F(Differentiate, ATiedParameterGetsOneChainOfAdditionsIntoOneGradient) {
  const ValueId x = op("embedding", {tokens_, wte_});
  const auto leaves = differentiate_loss_of(op("linear", {x, wte_}));
  ASSERT_TRUE(leaves.ok()) << leaves.error().text();
  ASSERT_EQ(leaves->size(), 1u);
  const Op& last = graph_.op(graph_.value((*leaves)[0].grad).producer);
  EXPECT_STREQ(last.def->kind, "embedding_wgrad");
  ASSERT_EQ(last.acc.size(), 1u);
  EXPECT_STREQ(graph_.op(graph_.value(last.acc[0]).producer).def->kind, "linear_wgrad");
  EXPECT_EQ(last.phase, Phase::weight_grad);
  EXPECT_EQ(graph_.value((*leaves)[0].grad).dims, graph_.value(wte_).dims);
}

TEST_F(Differentiate, ABranchAddsItsGradients) {
  const ValueId x = op("embedding", {tokens_, wte_});
  const ValueId y = op("add", {x, op("gelu", {x})});
  ASSERT_TRUE(differentiate_loss_of(y).ok());
  EXPECT_EQ(backward_kinds(), "cross_entropy_dgrad gelu_dgrad add embedding_wgrad");
}

TEST_F(Differentiate, AValueAddedToItselfGetsTwiceTheGradient) {
  const ValueId x = op("embedding", {tokens_, wte_});
  ASSERT_TRUE(differentiate_loss_of(op("add", {x, x})).ok());
  EXPECT_EQ(backward_kinds(), "cross_entropy_dgrad add embedding_wgrad");
  EXPECT_EQ(graph_.op(static_cast<OpId>(first_backward_) + 1).in[0],
            graph_.op(static_cast<OpId>(first_backward_) + 1).in[1]);
}

TEST_F(Differentiate, OpsThatTheLossDoesNotReachGetNoBackward) {
  const ValueId x = op("embedding", {tokens_, wte_});
  op("gelu", {x});
  ASSERT_TRUE(differentiate_loss_of(x).ok());
  EXPECT_EQ(backward_kinds(), "cross_entropy_dgrad embedding_wgrad");
}

TEST_F(Differentiate, AnotherCrossEntropyInTheModelIsNotALoss) {
  const ValueId x = op("embedding", {tokens_, wte_});
  op("cross_entropy", {x, targets_});
  ASSERT_TRUE(differentiate_loss_of(x).ok());
  EXPECT_EQ(backward_kinds(), "cross_entropy_dgrad embedding_wgrad");
}

TEST_F(Differentiate, LeavesComeInTheOrderInWhichTheyAreComplete) {
  const ValueId w1 = param("w1", {{"hidden", 4}, {"hidden", 4}}),
                w2 = param("w2", {{"vocab", 8}, {"hidden", 4}});
  const ValueId x = op("embedding", {tokens_, wte_});
  const auto leaves = differentiate_loss_of(op("linear", {op("linear", {x, w1}), w2}));
  ASSERT_TRUE(leaves.ok());
  std::vector<ValueId> order;
  for (const LeafGrad& leaf : *leaves) order.push_back(leaf.param);
  EXPECT_EQ(order, (std::vector<ValueId>{w2, w1, wte_}));
}

TEST_F(Differentiate, AParameterWithoutInfluenceIsG005) {
  param("idle", {{"hidden", 4}});
  const auto leaves = differentiate_loss_of(op("embedding", {tokens_, wte_}));
  expect_error(leaves, "G005", "the loss does not depend on parameter 'idle'");
  EXPECT_EQ(leaves.error().fix, "remove it, or use it");
}

TEST_F(Differentiate, AnActivationAsAWeightIsG006) {
  const ValueId square = leaf("square", Dtype::f32, {{"vocab", 8}, {"hidden", 4}}, Role::input);
  const auto leaves = differentiate_loss_of(op("linear", {op("embedding", {tokens_, wte_}), square}));
  expect_error(leaves, "G006", "linear_wgrad: operand 'square' must be a parameter");
}

TEST_F(Differentiate, HalfTiedParametersAreG006) {
  const ValueId w = param("w", {{"hidden", 4}}), b1 = param("b1", {{"hidden", 4}}),
                b2 = param("b2", {{"hidden", 4}});
  const ValueId x = op("embedding", {tokens_, wte_});
  const ValueId y = op("layernorm", {x, w, b1}, {{"eps", 1e-5}});
  const auto leaves = differentiate_loss_of(op("layernorm", {y, w, b2}, {{"eps", 1e-5}}));
  expect_error(leaves, "G006", "layernorm_wgrad: parameters of one op must be tied together or not at all");
}

// Its gradient would come from a plain op, whose result is new in each microbatch, not added up.
TEST_F(Differentiate, AParameterAsAPlainOperandIsG007) {
  const ValueId offset = param("offset", {{"batch", 2}, {"seq", 3}, {"hidden", 4}});
  const auto leaves = differentiate_loss_of(op("add", {op("embedding", {tokens_, wte_}), offset}));
  expect_error(
      leaves, "G007",
      "add: parameter 'offset' is a plain operand, through which its gradient cannot be added up over "
      "microbatches");
  EXPECT_EQ(leaves.error().fix, "use bias_add, or another op that takes it as a weight");
}

TEST_F(Differentiate, AWeightThatIsAPlainOperandTooIsG007) {
  const ValueId both = param("both", {{"batch", 2}, {"seq", 3}, {"hidden", 4}});
  const ValueId head = param("head", {{"vocab", 8}, {"batch", 2}, {"seq", 3}});
  const ValueId x = op("add", {op("embedding", {tokens_, wte_}), both});
  const auto leaves = differentiate_loss_of(op("linear", {op("linear", {x, both}), head}));
  expect_error(leaves, "G007",
               "add: parameter 'both' is a plain operand, through which its gradient cannot be added up over "
               "microbatches");
}

// A statistic that the loss depends on would otherwise lose its gradient without a word.
TEST_F(Differentiate, ALossThroughASecondOutputIsG005) {
  const ValueId w = param("w", {{"hidden", 4}}), head = param("head", {{"vocab", 8}});
  const ValueId x = op("embedding", {tokens_, wte_});
  const std::vector<ValueId> norm = ops("rmsnorm", {x, w}, {{"eps", 1e-5}});
  const auto leaves = differentiate_loss_of(op("linear", {norm[1], head}));
  expect_error(leaves, "G005", "the loss depends on output 'rstd' of rmsnorm, which has no backward");
  EXPECT_EQ(leaves.error().fix, "use output 'y' only");
}

TEST_F(Differentiate, AnOpWithoutBackwardOnTheWayIsG005) {
  const ValueId x = op("embedding", {tokens_, wte_});
  const auto leaves = differentiate_loss_of(op("all_reduce", {x}));
  expect_error(leaves, "G005", "op 'all_reduce' has no backward");
}

}  // namespace
}  // namespace tenon
