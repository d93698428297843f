// A run on disk: its folder holds run.json (what is trained, from where), checkpoints/ and metrics.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/places.h"
#include "cli/run_folder.h"
#include "graph/recipe.h"
#include "host/recipe/evaluate.h"
#include "run/plugin_set.h"

namespace tenon::cli {

struct Job {
  std::string directory;                    // of the run; empty: none (check, plan)
  std::shared_ptr<const RunFolder> folder;  // it, where the run is trained: nobody else does
  std::string run_id;
  std::string root;  // relative data paths start here
  int ranks = 0;     // that it was started with; 0: not known
  ResolvedRecipe resolved;
  Recipe recipe;

  std::string checkpoints() const { return directory + "/checkpoints"; }
};

// Evaluates a recipe file (.lua, or .json already resolved).
Result<Job> job_from_recipe(const Places& places, PluginRegistry& registry, const std::string& path,
                            const std::vector<std::string>& overrides);
// Chooses a new folder (`wanted`, or runs/<name>/<number>), takes it, and writes run.json into it. Error R020
// when `wanted` holds a run already, R027 when another process is about to make one there.
Status create_run(Job& job, const std::string& wanted);
// Takes back the folder of a run that failed before it had anything to keep: only run.json, and metrics
// without a line.
void discard_unstarted(const Job& job);
// Of the newest checkpoint; 0: there is none, which whoever loads it will say.
int64_t steps_saved(const Job& job);
// Error C022 where the recipe in run.json is not the one that the newest checkpoint was trained with.
Status check_recipe_kept(const Job& job);
// What to do about a run that has ended too early; "": nothing, for it has saved nothing.
std::string resume_advice(const Job& job);
// Reads the run.json of an earlier `tenon train`. Error R021.
Result<Job> job_from_run(const std::string& directory);
// Of one that goes on: takes its folder, too, and where run.json is not there makes it anew from the newest
// checkpoint, which `warning` tells. Also R027.
Result<Job> job_to_resume(const std::string& directory, std::string& warning);

// Plugins of a job, with errors placed in the recipe's source.
Result<PluginSet> plugins_of(PluginRegistry& registry, const Job& job);

}  // namespace tenon::cli
