// Placement propagation: from a graph without collectives to the same graph with every value placed
// and a collective wherever the placement that an op makes differs from the one its reader needs.
#pragma once

#include "graph/graph.h"

namespace tenon {

// Inputs and parameters are where their pins say, else replicated, and stay there: activations are resharded
// to them. A gradient is used in the placement in which its forward value was made. `replicated`: values that
// must be replicated in the end (their map entries are the resharded values). Ops that add into one gradient
// must agree on its placement: axes on which they would not are left out of all of them.
// `first`: sums over these axes come before any other step of a reshard, the last of them first.
// Errors: P002 when a reshard cannot be expressed, P010 when a sharded dim does not divide.
Result<PlacedGraph> propagate(const Graph& source, const Mesh& mesh, const std::vector<ValueId>& replicated,
                              const std::vector<AxisId>& first = {});

// Re-derives every placement of a placed graph from the rules, trusting nothing that propagate() wrote.
// Error V001 names the op, the operand, the placement found and the one that the rule allows.
Status check_types(const Graph& placed, const Mesh& mesh);

}  // namespace tenon
