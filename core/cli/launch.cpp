#include "cli/launch.h"

#include <fmt/format.h>

#include <thread>

#include "cli/workers.h"
#include "host/resolve.h"
#include "run/cause.h"
#include "run/rendezvous/memory_rendezvous.h"

namespace tenon::cli {
namespace {

Result<LoopEnd> run_threads(PluginRegistry& registry, const Job& job, const PluginSet& plugins, int ranks,
                            const Task& task, Progress* progress) {
  run::MemoryRendezvous rendezvous;
  std::vector<std::optional<Result<LoopEnd>>> ends(static_cast<size_t>(ranks));
  const auto rank_main = [&](int rank) {
    auto& end = ends[static_cast<size_t>(rank)];
    end.emplace(run_task(task, registry, job, plugins, {rank, ranks}, ranks > 1 ? &rendezvous : nullptr,
                         rank == 0 ? progress : nullptr));
    if (!end->ok()) rendezvous.abort(fmt::format("rank {} failed: {}", rank, end->error().cause));
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < ranks; ++rank) threads.emplace_back(rank_main, rank);
  rank_main(0);
  for (std::thread& thread : threads) thread.join();
  Cause cause;
  for (int rank = 0; rank < ranks; ++rank) {
    if (const auto& end = *ends[static_cast<size_t>(rank)]; !end.ok()) cause.hear(rank, end.error());
  }
  if (cause.error()) return *cause.error();
  return std::move(*ends[0]);
}

}  // namespace

Result<LoopEnd> launch(const Places& places, PluginRegistry& registry, const Job& job, int ranks,
                       const Task& task) {
  TENON_TRY(const PluginSet plugins, plugins_of(registry, job));
  const bool threads = ranks == 1 || (plugins.comm.table->flags & TENON_COMM_IN_PROCESS) != 0;
  if (!threads) return run_workers(places, job, ranks, task);
  std::unique_ptr<Progress> progress;
  if (task.kind != Task::Kind::bench) {
    TENON_TRY(progress, Progress::create(plugins, job, task.style, task.tracing.file));
  }
  auto end = run_threads(registry, job, plugins, ranks, task, progress.get());
  if (!end.ok()) return locate(std::move(end).error(), job.resolved);
  return end;
}

}  // namespace tenon::cli
