// The verbs `check` and `plan`: what a recipe becomes on any number of ranks, without running it.
#pragma once

#include "cli/job.h"
#include "cli/machine.h"
#include "plan/compile/compile.h"

namespace tenon::cli {

struct PlanOptions {
  std::string recipe;
  std::vector<std::string> overrides;
  int ranks = 0;                // 0: as the recipe's mesh says
  std::optional<int64_t> rank;  // plan: whose program is printed; unset: 0. check: as whom; unset: all
  uint64_t memory = 0;          // bytes that a rank has; 0: no limit
  bool json = false;
  bool unfold = false;            // every microbatch
  std::string stage = "program";  // what is printed: a graph on the way to it, or the program
  std::vector<std::string> why;   // instructions to explain instead: "12", "3,12"
  std::string trace, svg;         // files to write
  GivenMachine machine;           // for the simulation
};

// Given ranks, or those of a mesh without open axes, or 1.
int ranks_for(int given, const Recipe& recipe);
// That it can be compiled for training, and is proved. Errors are placed in the recipe's source.
Status check_job(const Job& job, const PluginSet& plugins, int ranks);

// Exit codes.
Result<int> check_recipe(const Places& places, const PlanOptions& options);
Result<int> print_plan(const Places& places, const PlanOptions& options);

}  // namespace tenon::cli
