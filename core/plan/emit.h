// From a joint graph to the instruction list of a step: unrolls microbatches, gives every value a
// buffer, folds gradients over microbatches, merges gradient reductions into buckets.
#pragma once

#include "plan/joint.h"
#include "plan/program.h"

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
  int64_t microbatches = 1;
  bool exact = false;      // fixed tree over microbatches and ranks
  bool tree_order = true;  // the comm plugin reduces in that tree itself
  uint64_t bucket_bytes = 4u << 20;
};

// Buffers have no offsets and instructions no waits yet: see schedule_waits() and plan_memory().
Result<Program> emit(const JointGraph& joint, const Mesh& mesh, ProgramKind kind, const EmitOptions& options,
                     const OptimizerPlan& optimizer);

// Adds the wait edges that the operands' bytes demand, and no other.
void schedule_waits(Program& program);

}  // namespace tenon
