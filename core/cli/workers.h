// All worker processes of a run: starts them, passes signals on, and tells how they ended.
#pragma once

#include "cli/task.h"

namespace tenon::cli {

// Runs the task on `ranks` workers to the end of all. When one fails the others are told, and killed if they
// do not end soon. Error: the one that matters (run/cause.h); W002 when a worker died.
Result<LoopEnd> run_workers(const Places& places, const Job& job, int ranks, const Task& task);

}  // namespace tenon::cli
