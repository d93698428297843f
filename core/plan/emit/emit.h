// From a joint graph to the instruction lists of a step: one for each class of ranks, that is for each place
// on the pipeline's axis. Rows are emitted in one order over all classes, and both ends of every transfer
// in that order, so that the lists cannot deadlock.
#pragma once

#include "graph/joint.h"
#include "plan/emit/layout.h"
#include "plan/emit/options.h"
#include "plan/program/program.h"
#include "plan/rows/rows.h"

namespace tenon {

// Buffers have no offsets and instructions no waits yet: see schedule_waits() and plan_memory().
// `rows`: checked.
Result<std::vector<Program>> emit(const JointGraph& joint, const Mesh& mesh, ProgramKind kind,
                                  const Rows& rows, const ParamPlan& params, const EmitOptions& options,
                                  const OptimizerPlan& optimizer);

}  // namespace tenon
