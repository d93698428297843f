// Why propagation moves values, and which strategy is behind a cut: what Value::origins and Graph::reasons
// hold. It watches a placed graph as that is made, and decides nothing.
#pragma once

#include "graph/graph.h"

namespace tenon {

class Reasons {
 public:
  // All borrowed: the graph that is placed, what is there of the placed one, and the placement of each source
  // value as its op made it.
  Reasons(const Graph& source, const Mesh& mesh, const PlacedGraph& placed,
          const std::vector<Placement>& natural)
      : source_(source), mesh_(mesh), placed_(placed), natural_(natural) {}

  // Who cut a value of the placed graph over an axis, or wanted it whole there.
  Origin origin_of(ValueId id, AxisId axis) const;
  // Of each axis of result k of an op of the source graph. The result is the placed graph's next value.
  std::vector<Origin> origins_of(const Op& op, size_t k, const Typing& typing) const;

  // Why operand i of an op is wanted elsewhere along an axis: because of where the op is to see its operands
  // (`seen`: gradients, what is overwritten, and, if the axis is `left_out`, accumulations), or because of
  // its rule. Reason::reader is not set.
  Reason of_reader(const Op& op, size_t i, const std::vector<Placement>& seen, const Typing& typing,
                   AxisId axis, bool left_out) const;
  // Why a value goes from where its op makes it to `target`, where its pins want it. An axis without a pin
  // makes room for one that has to be inside or outside of it.
  Reason of_pin(ValueId id, const Placement& target, AxisId axis) const;

 private:
  const Placement& placement_of(ValueId source) const {
    return placed_.graph.value(placed_.map[source]).placement;
  }
  // Of a source value, as its op made it.
  ValueId made(ValueId source) const { return placed_.graph.made(placed_.map[source]); }
  void blame_rule(const Op& op, size_t i, const std::vector<Placement>& seen, const Typing& typing,
                  AxisId axis, Reason& out) const;
  ValueId value_of(const Op& op, size_t part, const std::vector<Placement>& seen, AxisId axis) const;
  std::vector<Origin> sources_of(const Op& op, size_t k, const Typing& typing, AxisId axis) const;

  const Graph& source_;
  const Mesh& mesh_;
  const PlacedGraph& placed_;
  const std::vector<Placement>& natural_;
};

}  // namespace tenon
