#include "cli/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/bench.h"
#include "run/cause.h"
#include "run/rendezvous/auth.h"
#include "run/rendezvous/memory_rendezvous.h"
#include "run/rendezvous/tcp_client.h"
#include "run/rendezvous/tcp_server.h"

namespace tenon::cli {
namespace {

// Signals are the process's own.
std::atomic<bool> g_stop{false};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

Result<LoopEnd> run_rank(const Job& job, const PluginSet& plugins, const SessionOptions& session_options,
                         bool resume, LoopObserver* observer) {
  TENON_TRY(const auto session, Session::open(job.recipe, plugins, session_options));
  LoopOptions loop;
  loop.checkpoints = job.checkpoints();
  loop.run_id = job.run_id;
  loop.resume = resume;
  loop.stop = &g_stop;
  loop.observer = observer;
  auto end = run_loop(*session, loop);
  if (!end.ok()) session->abort();
  return end;
}

Result<LoopEnd> end_of(Status status) {
  if (!status.ok()) return std::move(status).error();
  return LoopEnd::finished;
}

// -- virtual ranks ------------------------------------------------------------------------------------

Result<LoopEnd> run_threads(const Job& job, const PluginSet& plugins, const LaunchOptions& options,
                            PluginRegistry& registry, Progress* progress) {
  run::MemoryRendezvous rendezvous;
  std::vector<std::optional<Result<LoopEnd>>> ends(static_cast<size_t>(options.ranks));
  const auto rank_main = [&](int rank) {
    SessionOptions session;
    session.id = {rank, options.ranks};
    session.rendezvous = options.ranks > 1 ? &rendezvous : nullptr;
    session.root = job.root;
    session.threads = threads_of_rank(options.threads, options.ranks);
    session.trace = options.tracing.steps;
    auto& end = ends[static_cast<size_t>(rank)];
    end.emplace(options.bench
                    ? end_of(bench_rank(registry, job, session))
                    : run_rank(job, plugins, session, options.resume, rank == 0 ? progress : nullptr));
    if (!end->ok()) rendezvous.abort(fmt::format("rank {} failed: {}", rank, end->error().cause));
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < options.ranks; ++rank) threads.emplace_back(rank_main, rank);
  rank_main(0);
  for (std::thread& thread : threads) thread.join();
  Cause cause;
  for (int rank = 0; rank < options.ranks; ++rank) {
    if (const auto& end = *ends[static_cast<size_t>(rank)]; !end.ok()) cause.hear(rank, end.error());
  }
  if (cause.error()) return *cause.error();
  return std::move(*ends[0]);
}

// -- processes ----------------------------------------------------------------------------------------

struct Worker {
  pid_t pid = -1;
  int rank = 0;
  int report = -1;  // read end
  std::optional<int> status;
  bool ended_by_us = false;  // SIGKILL, after another one had failed
};

struct Pipe {
  int read = -1, write = -1;
};

Result<Pipe> make_pipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0)
    return Error{"E011", fmt::format("pipe: {}", std::strerror(errno)), "", "", TENON_E_IO};
  return Pipe{fds[0], fds[1]};
}

class Launcher {
 public:
  Launcher(const Places& places, const Job& job, const LaunchOptions& options)
      : places_(places), job_(job), options_(options) {}

  ~Launcher() {
    for (Worker& worker : workers_) {
      if (!worker.status) kill(worker.pid, SIGKILL), waitpid(worker.pid, nullptr, 0);
      if (worker.report >= 0) close(worker.report);
    }
  }

  Result<LoopEnd> run() {
    TENON_TRY(secret_, run::make_secret());
    run::ServerOptions server;
    server.secret = secret_;
    server.job = job_.run_id;
    server.world = static_cast<uint32_t>(options_.ranks);
    TENON_TRY(server_, run::TcpServer::start(server));
    for (int rank = 0; rank < options_.ranks; ++rank) TENON_CHECK(start(rank));
    return watch();
  }

 private:
  Status start(int rank) {
    TENON_TRY(const Pipe secret, make_pipe());
    TENON_TRY(const Pipe report, make_pipe());
    const bool sent =
        write(secret.write, secret_.data(), secret_.size()) == static_cast<ssize_t>(secret_.size());
    close(secret.write);
    constexpr int kSecretFd = 3, kReportFd = 4;
    std::vector<std::string> args{
        places_.command, "worker",
        "--run-dir",     job_.directory,
        "--rank",        std::to_string(rank),
        "--world",       std::to_string(options_.ranks),
        "--port",        std::to_string(server_->port()),
        "--secret-fd",   std::to_string(kSecretFd),
        "--report-fd",   std::to_string(kReportFd),
        "--threads",     std::to_string(threads_of_rank(options_.threads, options_.ranks)),
        "--style",       style_name(options_.style)};
    if (options_.resume) args.emplace_back("--resume");
    if (options_.bench) args.emplace_back("--bench");
    if (const Tracing& tracing = options_.tracing; tracing.steps.any()) {
      args.insert(args.end(), {"--trace", tracing.file, "--trace-first", std::to_string(tracing.steps.first),
                               "--trace-last", std::to_string(tracing.steps.last)});
    }
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    // Through high numbers first, so that neither is overwritten before it was moved.
    posix_spawn_file_actions_adddup2(&actions, secret.read, 100);
    posix_spawn_file_actions_adddup2(&actions, report.write, 101);
    posix_spawn_file_actions_adddup2(&actions, 100, kSecretFd);
    posix_spawn_file_actions_adddup2(&actions, 101, kReportFd);
    posix_spawn_file_actions_addclose(&actions, 100);
    posix_spawn_file_actions_addclose(&actions, 101);
    Worker worker;
    worker.rank = rank;
    worker.report = report.read;
    const int failed =
        sent ? posix_spawn(&worker.pid, places_.command.c_str(), &actions, nullptr, argv.data(), environ)
             : EIO;
    posix_spawn_file_actions_destroy(&actions);
    close(secret.read);
    close(report.write);
    if (failed != 0)
      return Error{"E011", fmt::format("cannot start worker {}: {}", rank, std::strerror(failed)), "", "",
                   TENON_E_IO};
    workers_.push_back(worker);
    return {};
  }

  // Waits for all workers; after the first failure, stops the rest.
  Result<LoopEnd> watch() {
    bool told_to_stop = false;
    Cause cause;
    auto deadline = std::chrono::steady_clock::time_point::max();
    while (running() > 0) {
      if (g_stop.load() && !told_to_stop) {
        signal_all(SIGTERM);
        told_to_stop = true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      for (Worker& worker : workers_) {
        if (!reap(worker) || ended_well(worker) || worker.ended_by_us) continue;
        const Error error = error_of(worker);
        if (!cause.error()) {
          server_->abort(error.cause);
          deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
        }
        cause.hear(worker.rank, error);
      }
      if (std::chrono::steady_clock::now() > deadline) signal_all(SIGKILL);
    }
    if (cause.error()) return *cause.error();
    const bool stopped = std::any_of(workers_.begin(), workers_.end(),
                                     [](const Worker& w) { return stopped_well(*w.status); });
    return stopped ? LoopEnd::stopped : LoopEnd::finished;
  }

  static bool stopped_well(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == kExitStopped; }

  static bool ended_well(const Worker& worker) { return *worker.status == 0 || stopped_well(*worker.status); }

  size_t running() const {
    return static_cast<size_t>(
        std::count_if(workers_.begin(), workers_.end(), [](const Worker& w) { return !w.status; }));
  }

  bool reap(Worker& worker) {
    if (worker.status) return false;
    int status = 0;
    if (waitpid(worker.pid, &status, WNOHANG) != worker.pid) return false;
    worker.status = status;
    return true;
  }

  void signal_all(int signal) {
    for (Worker& worker : workers_) {
      if (worker.status) continue;
      kill(worker.pid, signal);
      worker.ended_by_us = signal == SIGKILL;
    }
  }

  Error error_of(Worker& worker) {
    const std::string fix = options_.bench ? "" : fmt::format("tenon resume {}", job_.directory);
    if (WIFSIGNALED(*worker.status)) {
      const int signal = WTERMSIG(*worker.status);
      return Error{"W002",
                   fmt::format("rank {} (process {}) was killed by signal {} ({})", worker.rank, worker.pid,
                               signal, strsignal(signal)),
                   "", fix, TENON_E_UNKNOWN};
    }
    std::string text;
    char buffer[4096];
    for (ssize_t n; worker.report >= 0 && (n = read(worker.report, buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(n));
    const Json report = Json::parse(text, nullptr, false);
    if (!report.is_object()) {
      return Error{"W002",
                   fmt::format("rank {} (process {}) ended with code {} and said nothing", worker.rank,
                               worker.pid, WEXITSTATUS(*worker.status)),
                   "", fix, TENON_E_UNKNOWN};
    }
    return Error{report.value("code", ""), fmt::format("rank {}: {}", worker.rank, report.value("cause", "")),
                 report.value("place", ""), report.value("fix", ""), report.value("kind", TENON_E_UNKNOWN)};
  }

  const Places& places_;
  const Job& job_;
  const LaunchOptions& options_;
  std::string secret_;
  std::unique_ptr<run::TcpServer> server_;
  std::vector<Worker> workers_;
};

void report(int fd, const Error& error) {
  const std::string text = Json{
      {"code", error.code},
      {"cause", error.cause},
      {"place", error.place},
      {"fix", error.fix},
      {"kind", error.kind}}.dump();
  [[maybe_unused]] const ssize_t n = write(fd, text.data(), text.size());
}

Result<LoopEnd> work(const Places& places, const WorkerOptions& options) {
  PluginRegistry registry(places.registry);
  TENON_TRY(const Job job, job_from_run(options.directory));
  TENON_TRY(const PluginSet plugins, plugins_of(registry, job));
  run::ClientOptions client;
  client.port = static_cast<uint16_t>(options.port);
  client.job = job.run_id;
  client.rank = static_cast<uint32_t>(options.rank);
  client.secret.resize(32);
  if (read(options.secret_fd, client.secret.data(), client.secret.size()) != 32) {
    return Error{"W003", "the launcher sent no secret", "", "workers are started by tenon train",
                 TENON_E_ARGUMENT};
  }
  TENON_TRY(const auto rendezvous, run::TcpClient::connect(client));
  SessionOptions session;
  session.id = {options.rank, options.world};
  session.rendezvous = rendezvous.get();
  session.root = job.root;
  session.threads = options.threads;
  session.trace = options.traced;
  std::unique_ptr<Progress> progress;
  if (options.rank == 0 && !options.bench) {
    const auto style = options.style == "json"   ? Progress::Style::json
                       : options.style == "live" ? Progress::Style::live
                                                 : Progress::Style::plain;
    TENON_TRY(progress, Progress::create(plugins, options.directory, style, options.trace));
  }
  auto end = options.bench ? end_of(bench_rank(registry, job, session))
                           : run_rank(job, plugins, session, options.resume, progress.get());
  if (!end.ok()) return locate(std::move(end).error(), job.resolved);
  return end;
}

}  // namespace

int threads_of_rank(int given, int ranks) {
  if (given > 0) return given;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / std::max(1, ranks));
}

// Signals are taken by a thread of their own and blocked in all others: generated matrix code may use the
// stack pointer freely, and a signal frame would then be written into somebody's memory.
void install_stop_handler(bool second_ends) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals, second_ends] {
    for (int signal = 0; sigwait(&signals, &signal) == 0;) {
      const bool again = g_stop.exchange(true);
      if (!again || !second_ends || signal != SIGINT) continue;
      pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
      kill(getpid(), SIGINT);
    }
  }).detach();
}

const std::atomic<bool>& stop_requested() { return g_stop; }

const char* style_name(Progress::Style style) {
  switch (style) {
    case Progress::Style::live: return "live";
    case Progress::Style::json: return "json";
    case Progress::Style::plain: break;
  }
  return "plain";
}

// 0 done, 1 the run failed, 2 recipe or usage, 3 environment (plugins, files), 4 a worker died or a peer
// was lost, 5 checkpoint, 75 stopped and saved.
int exit_code_of(const Error& error) {
  switch (error.code.empty() ? ' ' : error.code[0]) {
    case 'R':
    case 'P':
    case 'D':
    case 'S':
    case 'G': return kExitRecipe;
    case 'A':
    case 'E': return kExitEnvironment;
    case 'W': return 4;
    case 'C': return 5;
    default: return 1;
  }
}

Result<LoopEnd> launch(const Places& places, PluginRegistry& registry, const Job& job,
                       const LaunchOptions& options) {
  TENON_TRY(const PluginSet plugins, plugins_of(registry, job));
  const bool threads = options.ranks == 1 || (plugins.comm.table->flags & TENON_COMM_IN_PROCESS) != 0;
  if (!threads) return Launcher(places, job, options).run();
  std::unique_ptr<Progress> progress;
  if (!options.bench) {
    TENON_TRY(progress, Progress::create(plugins, job.directory, options.style, options.tracing.file));
  }
  auto end = run_threads(job, plugins, options, registry, progress.get());
  if (!end.ok()) return locate(std::move(end).error(), job.resolved);
  return end;
}

int worker_main(const Places& places, const WorkerOptions& options) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a worker does not outlive its launcher
  install_stop_handler(false);       // the launcher decides about a second Ctrl-C
  const auto end = work(places, options);
  if (end.ok()) return *end == LoopEnd::stopped ? kExitStopped : 0;
  report(options.report_fd, end.error());
  return exit_code_of(end.error());
}

}  // namespace tenon::cli
