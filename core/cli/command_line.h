// The command line as values. Parsing runs nothing, reads no file and prints nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/bench.h"
#include "cli/checkpoint.h"
#include "cli/plan.h"
#include "cli/sample.h"
#include "cli/tracing.h"
#include "cli/worker.h"

namespace tenon::cli {

enum class Verb : uint8_t { train, resume, eval, check, plan, sample, checkpoint, bench, plugins, worker };

struct Arguments {
  std::string target;                  // recipe, or folder of a run
  std::vector<std::string> overrides;  // key=value
  std::string run_dir;
  int ranks = 0;  // 0: as the recipe's mesh says
  int threads = 0;
  Tracing tracing;
  bool accept_recipe = false;
  bool json = false;
  bool markdown = false;
  PlanOptions plan;
  CheckpointOptions checkpoint;
  SampleOptions sample;
  BenchOptions bench;
  WorkerOptions worker;
};

struct CommandLine {
  std::optional<Verb> verb;
  Arguments arguments;
  // Without a verb: the help or the version.
  std::string text;
  bool asked = false;  // for it; false: there was nothing on the line
};

// `argv[0]` is the program. R023: it cannot be parsed.
Result<CommandLine> parse_command_line(int argc, const char* const* argv);

}  // namespace tenon::cli
