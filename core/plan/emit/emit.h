// From a joint graph to the instruction lists of a step: one for each class of ranks, that is for each place
// on the pipeline's axis. Each is emitted on its own: what goes between classes is planned before, in one
// order over all of them (see visits.h), so that the lists cannot deadlock.
#pragma once

#include "graph/joint.h"
#include "plan/emit/layout.h"
#include "plan/emit/options.h"
#include "plan/emit/scope.h"
#include "plan/emit/visits.h"
#include "plan/program/program.h"
#include "plan/rows/rows.h"

namespace tenon {

class Emission {
 public:
  // All of it is borrowed. `rows`: checked.
  Emission(const JointGraph& joint, const Mesh& mesh, ProgramKind kind, const Rows& rows,
           const ParamPlan& params, const EmitOptions& options, const OptimizerPlan& optimizer);
  Emission(const Emission&) = delete;
  Emission& operator=(const Emission&) = delete;

  int classes() const { return context_.rows.ranks; }
  // Buffers have no offsets and instructions no waits yet: see schedule_waits() and plan_memory().
  Result<Program> program_of(int klass) const;

 private:
  const StagePlan stages_;
  const EmitContext context_;
  const std::vector<std::vector<Visit>> visits_;  // by class
};

}  // namespace tenon
