// From a joint graph to the instruction lists of a step: one for each class of ranks, that is for each place
// on the pipeline's axis. Rows are emitted in one order over all classes, and both ends of every transfer
// in that order, so that the lists cannot deadlock.
#pragma once

#include "plan/joint.h"
#include "plan/layout.h"
#include "plan/program.h"
#include "plan/rows.h"

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

// Buffers have no offsets and instructions no waits yet: see schedule_waits() and plan_memory().
// `rows`: checked.
Result<std::vector<Program>> emit(const JointGraph& joint, const Mesh& mesh, ProgramKind kind,
                                  const Rows& rows, const ParamPlan& params, const EmitOptions& options,
                                  const OptimizerPlan& optimizer);

// Adds the wait edges that the operands' bytes demand, and no other.
void schedule_waits(Program& program);

}  // namespace tenon
