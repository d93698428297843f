#include "cli/worker.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "base/trail.h"
#include "cli/ending.h"
#include "cli/exit_code.h"
#include "cli/stop.h"
#include "host/resolve.h"
#include "run/rendezvous/tcp_client.h"

namespace tenon::cli {
namespace {

std::string report_of(const Error& error) {
  return printable(Json{{"code", error.code},
                        {"cause", error.cause},
                        {"place", error.place},
                        {"fix", error.fix},
                        {"kind", error.kind}});
}

Result<std::unique_ptr<run::TcpClient>> connect(const WorkerOptions& options, const Job& job) {
  run::ClientOptions client;
  client.port = static_cast<uint16_t>(options.port);
  client.job = job.run_id;
  client.rank = static_cast<uint32_t>(options.rank);
  client.secret.resize(32);
  if (read(options.secret_fd, client.secret.data(), client.secret.size()) != 32) {
    return Error{"W003", "the launcher sent no secret", "", "workers are started by tenon train",
                 TENON_E_ARGUMENT};
  }
  return run::TcpClient::connect(client);
}

Result<LoopEnd> work(const Places& places, const WorkerOptions& options) {
  PluginRegistry registry(places.registry);
  TENON_TRY(const Job job, job_from_run(options.directory));
  TENON_TRY(const PluginSet plugins, plugins_of(registry, job));
  TENON_TRY(const auto rendezvous, connect(options, job));
  const Task& task = options.task;
  std::unique_ptr<Progress> progress;
  if (options.rank == 0 && task.kind != Task::Kind::bench) {
    TENON_TRY(progress, Progress::create(plugins, job, task.style, task.tracing.file));
  }
  auto end =
      run_task(task, registry, job, plugins, {options.rank, options.world}, rendezvous.get(), progress.get());
  if (!end.ok()) return locate(std::move(end).error(), job.resolved);
  return end;
}

}  // namespace

void worker_main(const Places& places, const WorkerOptions& options) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);             // a worker does not outlive its launcher
  if (getppid() != options.launcher) _exit(1);  // it died before
  ignore_closed_pipes();
  auto left = trail::Shared::attach(options.trail_fd);
  if (left.ok()) left->watch();
  install_stop_handler();
  const Result<LoopEnd> end = left.ok() ? work(places, options) : Result<LoopEnd>(left.error());
  if (!end.ok()) {
    const std::string text = report_of(end.error());
    [[maybe_unused]] const ssize_t n = write(options.report_fd, text.data(), text.size());
  }
  if (!end.ok()) end_process(exit_code_of(end.error()));
  end_process(*end == LoopEnd::stopped ? kExitStopped : 0);
}

std::optional<Error> error_of_report(const std::string& text) {
  const Json report = Json::parse(text, nullptr, false);
  if (!report.is_object()) return std::nullopt;
  return Error{report.value("code", ""), report.value("cause", ""), report.value("place", ""),
               report.value("fix", ""), report.value("kind", TENON_E_UNKNOWN)};
}

}  // namespace tenon::cli
