// What the parts of the emitter of one class of ranks share. The class's program is made by three of them:
// its parameters (params), its gradients (gradients) and all other values (emitter).
#pragma once

#include "plan/emit/layout.h"
#include "plan/emit/options.h"
#include "plan/emit/stages.h"
#include "plan/program/builder.h"

namespace tenon {

// What all classes of a program share; borrowed.
struct EmitContext {
  const JointGraph& joint;
  const Mesh& mesh;
  ProgramKind kind;
  const EmitOptions& options;
  const OptimizerPlan& optimizer;
  const ParamPlan& params;
  const StagePlan& stages;
  const Rows& rows;
  bool tree;                                        // sums over ranks are added here, in the fixed tree
  int64_t work_share;                               // ranks over which an op's work is spread
  std::vector<double> flops;                        // of each op, over all ranks
  std::vector<std::optional<Operand>> locals = {};  // of each value, without memory; none: it does not divide
};

std::vector<std::optional<Operand>> locals_of(const Graph& graph, const Mesh& mesh);

// A parameter as a class holds it: the leaf of which bucket.
struct LeafPlace {
  size_t bucket, leaf;
};

struct Scope {
  Scope(const EmitContext& shared, int place);

  const Graph& graph() const { return context.joint.graph; }
  const std::vector<Bucket>& buckets() const { return context.params.buckets[static_cast<size_t>(index)]; }
  bool owns(int stage) const { return context.rows.owner[static_cast<size_t>(stage)] == index; }
  OpId id_of(const Op& op) const { return static_cast<OpId>(&op - graph().ops().data()); }
  // A reason that is about a bucket.
  Why why(Why::Because because, size_t bucket) const;
  // The local tensor of a value, which has no memory yet.
  Result<Operand> local(ValueId id) const;
  // A collective of the graph, from `in` to `out`.
  void reshard(const Op& op, const Operand& in, const Operand& out);
  // One of phase step: a sum is in place, everything else goes to memory of its own, which is returned.
  Result<Operand> reshard_once(const Op& op, const Operand& in);

  const EmitContext& context;
  const int index;
  ProgramBuilder builder;
};

}  // namespace tenon
