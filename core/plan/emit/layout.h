// How a class's parameters lie in memory: grouped by how their gradients are reduced, cut into buckets.
#pragma once

#include "graph/joint.h"
#include "plan/program/program.h"
#include "plan/rows/rows.h"

namespace tenon {

// Optimizer state of one group is cut only at multiples of this many elements of a tensor; 0: not at all.
constexpr int64_t kElementGranule = 16;  // a multiple of what a vector holds

struct Bucket {
  FlatLayout layout;
  std::vector<size_t> leaves;     // of JointGraph::leaves, as layout.leaves
  std::vector<AxisId> reduce;     // over which the gradients are partial sums, in the mesh's order
  std::vector<AxisId> norm_axes;  // over which the reduced gradients are cut: their norms are partial sums
  std::vector<OpId> steps;        // reshards of a leaf that is alone in its bucket, instead of `reduce`
  bool tied = false;              // other classes hold copies of the one parameter in it
  bool owner = true;              // false: this is such a copy
};

// What every program of a run has in common: which class holds which parameter where.
struct ParamPlan {
  std::vector<std::vector<size_t>> params;   // per class: indices into JointGraph::params, ascending
  std::vector<std::vector<Bucket>> buckets;  // per class
  std::vector<std::vector<int>> holders;     // per parameter: its classes, the owner first
};

struct LayoutOptions {
  bool exact = false;
  uint64_t bucket_bytes = 4u << 20;
  int64_t granule = kElementGranule;
  bool equal_parts = false;  // whole buckets divide by the members that sum them
};

// `train`: the joint graph of training, whatever the program. `owner`: class of each stage.
Result<ParamPlan> plan_params(const JointGraph& train, const Mesh& mesh, const std::vector<int>& owner,
                              const std::vector<int>& group_of_param, const LayoutOptions& options);

}  // namespace tenon
