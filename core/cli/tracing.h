// --trace and --trace-steps: what really ran in some steps, for a trace viewer.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "run/trace_range.h"

namespace CLI {
class App;
}

namespace tenon::cli {

// As the user said it, from the command's line to each rank's.
struct Tracing {
  std::string file;   // that is written; "": nothing is traced
  std::string steps;  // "first:last"; "": the second and the third that are done now
};

// The options of a verb, and the words that say the same.
void add_trace_options(CLI::App& verb, Tracing& tracing);
std::vector<std::string> words_of(const Tracing& tracing);

// The steps to trace when `done` of `all` are done already. Errors R004 (steps and no file), R005.
Result<TraceRange> steps_of(const Tracing& tracing, int64_t done, int64_t all);

// Makes the file, before a run whose trace could not be written, and settles the steps. Also R024.
Result<Tracing> prepare_trace(const Tracing& tracing, int64_t done, int64_t all);

}  // namespace tenon::cli
