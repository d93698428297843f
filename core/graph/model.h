// From a recipe's model to a forward graph for one batch shape.
#pragma once

#include "graph/recipe.h"

namespace tenon {

struct ForwardGraph {
  Graph graph;
  ValueId tokens = kNone, targets = kNone, positions = kNone, samples = kNone, step = kNone;
  ValueId logits = kNone;
  OpId loss_op = kNone;  // cross_entropy, where gradients start; kNone for `with_loss` = false
  ValueId loss = kNone;  // what is reported: the cross-entropy and every auxiliary loss, summed over tokens
  ValueId count = kNone;
};

// Of ops and parameters, repeats unrolled: more than any model has, few enough to build.
constexpr int64_t kMaxOps = int64_t{1} << 20;
// Of all values of a program's graph together, so that no sum over them is beyond 64 bits.
constexpr int64_t kMaxTotalElements = int64_t{1} << 55;

// Dims of tokens: [batch, seq]. Errors carry the op's JSON pointer as place. R014: more ops than that.
Result<ForwardGraph> build_forward(const Recipe& recipe, int64_t batch, int64_t seq, bool with_loss);

// R014: more elements than that. The graph of a whole batch, of which no program is made, may have more.
Status check_total_size(const Graph& graph);

}  // namespace tenon
