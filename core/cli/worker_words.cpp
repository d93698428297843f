// The words behind `tenon worker`, said by the launcher and understood by the worker.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "cli/worker.h"

namespace tenon::cli {
namespace {

const std::map<std::string, Task::Kind>& task_kinds() {
  static const std::map<std::string, Task::Kind> names{
      {"train", Task::Kind::train}, {"resume", Task::Kind::resume}, {"bench", Task::Kind::bench}};
  return names;
}

const std::map<std::string, Progress::Style>& styles() {
  static const std::map<std::string, Progress::Style> names{
      {"plain", Progress::Style::plain}, {"live", Progress::Style::live}, {"json", Progress::Style::json}};
  return names;
}

template <class Value>
std::string name_in(const std::map<std::string, Value>& names, Value value) {
  return std::ranges::find(names, value, &std::pair<const std::string, Value>::second)->first;
}

}  // namespace

std::vector<std::string> words_of(const WorkerOptions& options) {
  const Task& task = options.task;
  std::vector<std::string> out{"--run-dir",   options.directory,
                               "--rank",      std::to_string(options.rank),
                               "--world",     std::to_string(options.world),
                               "--launcher",  std::to_string(options.launcher),
                               "--port",      std::to_string(options.port),
                               "--secret-fd", std::to_string(options.secret_fd),
                               "--report-fd", std::to_string(options.report_fd),
                               "--trail-fd",  std::to_string(options.trail_fd),
                               "--task",      name_in(task_kinds(), task.kind),
                               "--threads",   std::to_string(task.threads),
                               "--style",     name_in(styles(), task.style)};
  std::ranges::move(words_of(task.tracing), std::back_inserter(out));
  return out;
}

void add_worker_options(CLI::App& verb, WorkerOptions& options) {
  Task& task = options.task;
  verb.group("");  // nobody starts one by hand
  verb.add_option("--run-dir", options.directory)->required();
  verb.add_option("--rank", options.rank)->required();
  verb.add_option("--world", options.world)->required();
  verb.add_option("--launcher", options.launcher)->required();
  verb.add_option("--port", options.port)->required();
  verb.add_option("--secret-fd", options.secret_fd)->required();
  verb.add_option("--report-fd", options.report_fd)->required();
  verb.add_option("--trail-fd", options.trail_fd)->required();
  verb.add_option("--task", task.kind)->transform(CLI::CheckedTransformer(task_kinds()));
  verb.add_option("--threads", task.threads);
  verb.add_option("--style", task.style)->transform(CLI::CheckedTransformer(styles()));
  add_trace_options(verb, task.tracing);
}

}  // namespace tenon::cli
