#include "layouts.h"

namespace tenon::mutants {

const FlatLayout& layout_of(const Program& program, int64_t index) {
  require(index >= 0 && static_cast<size_t>(index) < program.layouts.size(), "no such layout");
  const FlatLayout& layout = program.layouts[static_cast<size_t>(index)];
  int64_t members = 1;
  for (AxisId axis : layout.axes) {
    require(axis < program.mesh.axes.size(), "a layout is cut over an axis that the mesh lacks");
    members *= program.mesh.axes[axis].size;
  }
  require(members > 0 && layout.cuts.size() == static_cast<size_t>(members) + 1,
          "a layout has not as many cuts as members");
  for (size_t i = 0; i + 1 < layout.cuts.size(); ++i)
    require(layout.cuts[i] >= 0 && layout.cuts[i] <= layout.cuts[i + 1],
            "the cuts of a layout run backwards");
  require(layout.param_depth <= layout.axes.size(), "a layout is cut deeper than it has axes");
  return layout;
}

}  // namespace tenon::mutants
