// What a recipe and its plugins have to say about emission.
#pragma once

#include <string>
#include <vector>

#include "graph/types.h"

namespace tenon {

struct StateSlot {
  std::string name;  // "exp_avg"
  Dtype dtype = Dtype::f32;
  bool like_param = false;  // dtype follows the recipe's precision
};

// What the optimizer plugin declared, per group of parameters.
struct OptimizerPlan {
  std::string plugin;                          // "optimizer/adamw": part of the state's names
  std::vector<std::vector<StateSlot>> groups;  // slots of each group
  std::vector<int> group_of_param;             // by index into JointGraph::params
};

struct EmitOptions {
  bool exact = false;       // fixed tree over microbatches and ranks
  bool tree_order = true;   // the comm plugin reduces in that tree itself
  AxisId pipeline = kNone;  // the axis that Rows::owner counts along
};

}  // namespace tenon
