// Pins that say a whole placement: each axis of the mesh where the placement has it, or replicated. An axis
// over which it is partial stays unsaid: no pass can ask for a partial sum.
#pragma once

#include "graph/graph.h"

namespace tenon::test {

inline std::vector<Pin> pins_of(const Placement& placement, const Mesh& mesh) {
  std::vector<Pin> out;
  for (size_t d = 0; d < placement.dims.size(); ++d) {
    for (AxisId axis : placement.dims[d]) out.push_back({axis, d, "test"});
  }
  for (AxisId axis = 0; axis < mesh.axes.size(); ++axis) {
    if (!placement.sharded_dim(axis) && !placement.is_partial(axis))
      out.push_back({axis, std::nullopt, "test"});
  }
  return out;
}

}  // namespace tenon::test
