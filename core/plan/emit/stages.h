// What the stages of a pipeline do, and what they hand to each other.
#pragma once

#include "graph/joint.h"
#include "plan/rows/rows.h"

namespace tenon {

struct StagePlan {
  // Ops of each stage in the order of the graph, by the row that runs them: forward, input_grad, weight_grad
  // or backward (both gradients).
  const std::vector<OpId>& ops(RowKind kind, int stage) const;

  std::vector<std::vector<OpId>> by_row[4];  // [RowKind][stage]
  std::vector<std::vector<int>> readers;     // per value: the other stages that read it, ascending
  std::vector<bool> crossing;                // per value: made per microbatch, used by the step or after it
  std::vector<bool> exchanges;               // per op: it is a transfer, or has some inside
};

// Ops of phase `step` belong to no stage.
StagePlan plan_stages(const JointGraph& joint, const Mesh& mesh);

// Forward rows only, microbatch by microbatch: how programs without backward run.
Rows forward_rows(const std::vector<int>& owner, int microbatches);
// One rank, one stage: forward and backward of each microbatch.
Rows plain_rows(int microbatches);

}  // namespace tenon
