// What a recipe and its plugins have to say about emission.
#pragma once

#include "graph/placement.h"
#include "plan/program/optimizer.h"

namespace tenon {

struct EmitOptions {
  bool exact = false;       // fixed tree over microbatches and ranks
  bool tree_order = true;   // the comm plugin reduces in that tree itself
  AxisId pipeline = kNone;  // the axis that Rows::owner counts along
};

}  // namespace tenon
