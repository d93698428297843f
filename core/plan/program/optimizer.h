// What the optimizer plugin declared of itself.
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

struct OptimizerRule {  // of parameters
  std::vector<StateSlot> slots;
  int64_t stats = 0;  // sums over each parameter, of which its update reads those over the whole
};

struct OptimizerPlan {
  std::string plugin;  // "optimizer/adamw": part of the state's names
  std::vector<OptimizerRule> groups;
  std::vector<int> group_of_param;  // by index into JointGraph::params
};

// Of a parameter's slot, as a tensor of checkpoints: "wte.weight/optimizer/adamw.exp_avg".
std::string state_name(const std::string& param, const OptimizerPlan& optimizer, const StateSlot& slot);

}  // namespace tenon
