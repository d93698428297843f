// The way of a value from one placement to another: collectives, one behind the other.
#pragma once

#include "graph/placement.h"
#include "graph/transfer.h"

namespace tenon {

// One step of a reshard: the collective and the placement behind it.
struct Step {
  TransferKind kind;
  AxisId axis;
  Placement after;
  std::vector<AxisId> axes = {axis};  // more than one: the parts of an axis that was split
};

class Routes {
 public:
  // `first`: sums over these axes come before any other step, the last of them first. Borrowed, as the
  // mesh.
  Routes(const Mesh& mesh, const std::vector<AxisId>& first);

  // The next step, or nothing when the two are equal. `to` is partial over no axis over which `from` is
  // not.
  std::optional<Step> next(Placement from, Placement to) const;
  size_t length(Placement from, const Placement& to) const;

 private:
  // The parts of an axis that was split, in the mesh's order, which a reshard moves as one: its first
  // stands for all of them.
  using Unit = std::vector<AxisId>;

  static bool used_as_one(const Placement& placement, const Unit& unit);
  static Placement folded(Placement placement, const Unit& unit);
  static Placement unfolded(Placement placement, const Unit& unit);

  const std::vector<AxisId>& first_;
  std::vector<Unit> units_;
};

}  // namespace tenon
