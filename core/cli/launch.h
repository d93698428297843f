// Starts the ranks of a run, as threads (virtual ranks) or as processes, and watches over them.
#pragma once

#include <string>

#include "cli/job.h"
#include "cli/progress.h"
#include "run/loop.h"

namespace tenon::cli {

// What really ran in some steps, for a trace viewer.
struct Tracing {
  std::string file;
  TraceRange steps;
};

struct LaunchOptions {
  int ranks = 1;
  bool resume = false;
  Progress::Style style = Progress::Style::plain;
  int threads = 0;  // per rank; 0: cores / ranks
  Tracing tracing = {};
  bool bench = false;  // the benchmark in the job's folder instead of training
};

// Given, or this rank's share of the cores.
int threads_of_rank(int given, int ranks);

// Runs the job to its end. Errors: of the first rank that failed; W002 when a worker died.
Result<LoopEnd> launch(const Places& places, PluginRegistry& registry, const Job& job,
                       const LaunchOptions& options);

// What a worker process is told on its command line; the secret comes through a file descriptor.
struct WorkerOptions {
  std::string directory;
  int rank = 0;
  int world = 1;
  int port = 0;
  int secret_fd = -1;
  int report_fd = -1;  // errors go to the launcher through it
  int threads = 1;
  bool resume = false;
  std::string style = "plain";
  bool bench = false;
  std::string trace;  // the file; "": none
  TraceRange traced;
};
// The body of `tenon worker`. Returns the process's exit code.
int worker_main(const Places& places, const WorkerOptions& options);

// Set by SIGINT and SIGTERM once install_stop_handler() was called.
void install_stop_handler(bool second_ends = true);
const std::atomic<bool>& stop_requested();

const char* style_name(Progress::Style style);
int exit_code_of(const Error& error);
constexpr int kExitRecipe = 2, kExitEnvironment = 3, kExitStopped = 75;

}  // namespace tenon::cli
