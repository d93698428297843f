// Reverse-mode differentiation of a forward graph: appends backward ops to it.
//
// The seed is 1 per token (cross_entropy_dgrad), so every gradient is a sum over tokens. A parameter's
// gradient is one chain of ops that add into the same memory, in backward order.
#pragma once

#include <map>
#include <vector>

#include "graph/graph.h"

namespace tenon {

struct LeafGrad {
  ValueId param = kNone;
  ValueId grad = kNone;  // the end of the chain
};

// `loss_op`: the cross_entropy op. Returns one leaf per parameter that the loss depends on, in the order
// in which their gradients become complete. Error G005 for a parameter without influence, G007 for one that
// is an operand other than a weight.
Result<std::vector<LeafGrad>> differentiate(Graph& graph, OpId loss_op);

// What an op's backward builder sees.
class Backward {
 public:
  Backward(Graph& graph, std::vector<bool> needed) : graph_(graph), needed_(std::move(needed)) {}

  const Graph& graph() const { return graph_; }
  // Gradient of output k of the op being differentiated, and its input of that name.
  ValueId grad(size_t k) const;
  ValueId in(std::string_view name) const;
  // Adds an op; its output i is a gradient of targets[i] (dropped where targets[i] needs none).
  Status emit(const std::string& kind, const std::vector<ValueId>& in, const Attrs& attrs,
              const std::vector<ValueId>& targets);
  // Adds an op whose output i adds into the gradient of parameter targets[i].
  Status leaf(const std::string& kind, const std::vector<ValueId>& in, const Attrs& attrs,
              const std::vector<ValueId>& targets);
  // The gradient of `target` gets `grad` unchanged.
  void pass(ValueId target, ValueId grad);

  // For differentiate().
  Status run(OpId id, OpId loss_op);
  std::vector<LeafGrad> leaves() const;

 private:
  Status contribute(ValueId target, ValueId grad);
  // What the op's row says of its gradients.
  Status by_row();
  // Adds the backward op of that kind, in whose row operands are named after those of op_.
  Status derive(const std::string& kind, Phase phase);
  // Adds a backward op of op_, and records of what its operands are gradients.
  Result<std::vector<ValueId>> add(const std::string& kind, const std::vector<ValueId>& in,
                                   const Attrs& attrs, Phase phase, const std::vector<ValueId>& targets);
  // A new op works for the one being differentiated.
  void belongs(Op& made) const;

  Graph& graph_;
  std::vector<bool> needed_;          // per value: does the loss's gradient flow through it
  std::map<ValueId, ValueId> grads_;  // per value: its gradient so far
  std::vector<std::pair<ValueId, ValueId>> passed_;
  std::vector<ValueId> leaf_order_;
  OpId id_ = kNone;  // the op being differentiated
  Op op_;
};

}  // namespace tenon
