#include "cli/workers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "cli/death.h"
#include "cli/ending.h"
#include "cli/exit_code.h"
#include "cli/stop.h"
#include "cli/worker.h"
#include "run/cause.h"
#include "run/rendezvous/auth.h"
#include "run/rendezvous/tcp_server.h"

namespace tenon::cli {
namespace {

struct Worker {
  pid_t pid = -1;
  int rank = 0;
  int report = -1;  // read end
  std::optional<trail::Shared> left;
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

// An open file of ours, and its number in the new process.
struct Passed {
  int ours, theirs;
};

// Starts a process with some more files, and returns errno's value. All get new numbers above those of both
// sides first, so that none is overwritten before it was moved.
int spawn(pid_t& pid, std::vector<std::string> words, const std::vector<Passed>& files) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int high = 0;
  for (const Passed& file : files) high = std::max({high, file.ours + 1, file.theirs + 1});
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (size_t i = 0; i < files.size(); ++i)
    posix_spawn_file_actions_adddup2(&actions, files[i].ours, high + static_cast<int>(i));
  for (size_t i = 0; i < files.size(); ++i) {
    posix_spawn_file_actions_adddup2(&actions, high + static_cast<int>(i), files[i].theirs);
    posix_spawn_file_actions_addclose(&actions, high + static_cast<int>(i));
  }
  const int failed = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return failed;
}

class Workers {
 public:
  Workers(const Places& places, const Job& job, int ranks, const Task& task)
      : places_(places), job_(job), ranks_(ranks), task_(task) {}

  ~Workers() {
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
    server.world = static_cast<uint32_t>(ranks_);
    TENON_TRY(server_, run::TcpServer::start(server));
    for (int rank = 0; rank < ranks_; ++rank) TENON_CHECK(start(rank));
    return watch();
  }

 private:
  Status start(int rank) {
    TENON_TRY(const Pipe secret, make_pipe());
    TENON_TRY(const Pipe report, make_pipe());
    const bool sent =
        write(secret.write, secret_.data(), secret_.size()) == static_cast<ssize_t>(secret_.size());
    close(secret.write);
    const WorkerOptions options{job_.directory, rank, ranks_, getpid(), server_->port(), 3, 4, 5, task_};
    std::vector<std::string> words{places_.command, "worker"};
    std::ranges::move(words_of(options), std::back_inserter(words));
    Worker worker;
    worker.rank = rank;
    worker.report = report.read;
    TENON_TRY(worker.left, trail::Shared::create());
    // The last one says nothing to the worker: as long as it writes, the folder is taken.
    const int failed = sent ? spawn(worker.pid, words,
                                    {{secret.read, options.secret_fd},
                                     {report.write, options.report_fd},
                                     {worker.left->fd(), options.trail_fd},
                                     {job_.folder->fd(), 6}})
                            : EIO;
    close(secret.read);
    close(report.write);
    if (failed != 0)
      return Error{"E011", fmt::format("cannot start worker {}: {}", rank, std::strerror(failed)), "", "",
                   TENON_E_IO};
    workers_.push_back(std::move(worker));
    return {};
  }

  // Waits for all workers; after the first failure, stops the rest.
  Result<LoopEnd> watch() {
    constexpr auto kPatience = std::chrono::seconds(2);  // with those that were told that another failed
    bool told_to_stop = false;
    Cause cause;
    auto deadline = std::chrono::steady_clock::time_point::max();
    while (running() > 0) {
      if (stop_requested() && !told_to_stop) {
        signal_all(SIGTERM);
        told_to_stop = true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      for (Worker& worker : workers_) {
        if (reap(worker)) hear_end(worker, cause);
      }
      if (cause.error()) deadline = std::min(deadline, std::chrono::steady_clock::now() + kPatience);
      if (std::chrono::steady_clock::now() > deadline) signal_all(SIGKILL);
    }
    if (cause.error()) return *cause.error();
    const bool stopped = std::any_of(workers_.begin(), workers_.end(),
                                     [](const Worker& w) { return stopped_well(*w.status); });
    return stopped ? LoopEnd::stopped : LoopEnd::finished;
  }

  void hear_end(const Worker& worker, Cause& cause) {
    if (is_unread(worker)) end_by(SIGPIPE);
    if (ended_well(worker) || worker.ended_by_us) return;
    const Error error = error_of(worker);
    if (!cause.error()) server_->abort(error.cause);
    cause.hear(worker.rank, error);
  }

  static bool stopped_well(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == kExitStopped; }

  static bool ended_well(const Worker& worker) {
    return ended_as_told(*worker.status, *worker.left) &&
           (*worker.status == 0 || stopped_well(*worker.status));
  }

  // Whether it ended because nobody reads what the run prints.
  static bool is_unread(const Worker& worker) {
    return WIFSIGNALED(*worker.status) && WTERMSIG(*worker.status) == SIGPIPE &&
           ended_as_told(*worker.status, *worker.left);
  }

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

  Error error_of(const Worker& worker) const {
    const std::string fix = resume_advice(job_);
    const std::string who = fmt::format("rank {} (process {})", worker.rank, worker.pid);
    if (auto error = error_of_report(read_report(worker))) {  // before whatever became of it at its end
      error->cause = fmt::format("rank {}: {}", worker.rank, error->cause);
      return *error;
    }
    if (auto death = death_of(who, *worker.status, *worker.left)) {
      death->fix = fix;
      return *death;
    }
    return Error{"W002", who + " left no report", "", fix, TENON_E_UNKNOWN};
  }

  // All that it wrote is there, for it has ended. One that it left behind may hold the pipe open for ever.
  static std::string read_report(const Worker& worker) {
    fcntl(worker.report, F_SETFL, O_NONBLOCK);
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = read(worker.report, buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(n));
    return text;
  }

  const Places& places_;
  const Job& job_;
  const int ranks_;
  const Task& task_;
  std::string secret_;
  std::unique_ptr<run::TcpServer> server_;
  std::vector<Worker> workers_;
};

}  // namespace

Result<LoopEnd> run_workers(const Places& places, const Job& job, int ranks, const Task& task) {
  return Workers(places, job, ranks, task).run();
}

}  // namespace tenon::cli
