// Starts the ranks of a run, as threads (virtual ranks) or as worker processes, and watches over them.
#pragma once

#include "cli/task.h"

namespace tenon::cli {

// Runs the job's task on `ranks` ranks to its end. Error: the one that matters (run/cause.h); W002 when a
// worker died.
Result<LoopEnd> launch(const Places& places, PluginRegistry& registry, const Job& job, int ranks,
                       const Task& task);

}  // namespace tenon::cli
