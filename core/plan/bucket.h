// Gradients whose reduction is one collective, laid out one behind the other.
#pragma once

#include "plan/program.h"

namespace tenon {

struct LeafShape {  // a parameter's gradient, local to a rank
  uint64_t bytes = 0;
  std::vector<AxisId> axes;  // to be reduced over directly; empty: none
  OpId producer = 0;         // the op that completes it within a microbatch
};

struct Bucket {
  std::vector<size_t> leaves;
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;
  std::vector<AxisId> axes;
  OpId last_op = 0;  // completes it within a microbatch
};

// Cuts the leaves, in their order, into buckets of one set of axes and at most `limit` bytes (more only
// for a single leaf). Bytes are a multiple of what the members of the axes can share evenly.
std::vector<Bucket> plan_buckets(const std::vector<LeafShape>& leaves, const Mesh& mesh, uint64_t limit);

}  // namespace tenon
