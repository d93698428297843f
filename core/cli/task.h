// What a rank does of a job: the same whether it is a thread of the command or a worker process.
#pragma once

#include "cli/job.h"
#include "cli/progress.h"
#include "cli/tracing.h"
#include "run/loop.h"

namespace tenon::cli {

// Told alike to all ranks.
struct Task {
  enum class Kind : uint8_t { train, resume, bench };  // bench: the benchmark in the job's folder
  Kind kind = Kind::train;
  int threads = 0;  // of a rank; 0: its share of the cores
  Progress::Style style = Progress::Style::plain;
  Tracing tracing = {};
};

// `threads`, or this rank's share of the cores.
int threads_of_rank(int threads, int ranks);

// Runs the task as rank `id` to its end. `progress`: NULL on ranks other than 0, and of a benchmark.
// `rendezvous` may be NULL when the rank is alone. Collective.
Result<LoopEnd> run_task(const Task& task, PluginRegistry& registry, const Job& job, const PluginSet& plugins,
                         RankId id, run::Rendezvous* rendezvous, Progress* progress);

}  // namespace tenon::cli
