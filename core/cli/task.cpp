#include "cli/task.h"

#include <thread>

#include "cli/bench_rank.h"
#include "cli/stop.h"

namespace tenon::cli {
namespace {

Result<LoopEnd> train_rank(const Task& task, const Job& job, const PluginSet& plugins,
                           const SessionOptions& options, Progress* progress) {
  TENON_TRY(const auto session, Session::open(job.recipe, plugins, options));
  LoopOptions loop;
  TENON_TRY(loop.trace, steps_of(task.tracing, 0, job.recipe.steps));
  loop.checkpoints = job.checkpoints();
  loop.run_id = job.run_id;
  loop.resume = task.kind == Task::Kind::resume;
  loop.stop = &stop_requested();
  loop.observer = progress;
  auto end = run_loop(*session, loop);
  if (!end.ok()) session->abort();
  return end;
}

}  // namespace

int threads_of_rank(int threads, int ranks) {
  if (threads > 0) return threads;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / std::max(1, ranks));
}

Result<LoopEnd> run_task(const Task& task, PluginRegistry& registry, const Job& job, const PluginSet& plugins,
                         RankId id, run::Rendezvous* rendezvous, Progress* progress) {
  SessionOptions options;
  options.id = id;
  options.rendezvous = rendezvous;
  options.root = job.root;
  options.threads = threads_of_rank(task.threads, static_cast<int>(id.world));
  if (task.kind != Task::Kind::bench) return train_rank(task, job, plugins, options, progress);
  TENON_CHECK(bench_rank(registry, job, options));
  return LoopEnd::finished;
}

}  // namespace tenon::cli
