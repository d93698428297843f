// A worker: one rank of a run as a process of its own, which the launcher starts as `tenon worker ...`.
#pragma once

#include "cli/task.h"

namespace CLI {
class App;
}

namespace tenon::cli {

// What a worker is told on its command line; the secret comes through a file descriptor.
struct WorkerOptions {
  std::string directory;  // of the run
  int rank = 0;
  int world = 1;
  int launcher = 0;  // its process
  int port = 0;      // of its rendezvous
  int secret_fd = -1;
  int report_fd = -1;  // an error goes to the launcher through it
  int trail_fd = -1;   // where it leaves its trail
  Task task = {};
};

// The words behind `tenon worker`, and their definition.
std::vector<std::string> words_of(const WorkerOptions& options);
void add_worker_options(CLI::App& verb, WorkerOptions& options);

// The body of `tenon worker`, which ends the process.
[[noreturn]] void worker_main(const Places& places, const WorkerOptions& options);

// What a worker that failed wrote to its report; nothing if `text` is no report.
std::optional<Error> error_of_report(const std::string& text);

}  // namespace tenon::cli
