// Inference: from an op's operands and attributes to the types of its results, and to its work. Graph::add_op
// is here: it adds what is inferred.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "graph/ops.h"

namespace tenon {

struct TensorType {
  Dtype dtype;
  Dims dims;
};

// Checks operands and attributes, gives the outputs' types. Errors G002 and G004.
Result<std::vector<TensorType>> infer_outputs(const OpDef& def, Graph& graph, const std::vector<ValueId>& in,
                                              const Attrs& attrs);
// Floating-point operations of one call on the given dims (collectives: 0).
double flops_of(const Graph& graph, const Op& op);

}  // namespace tenon
