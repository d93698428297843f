#include "cli/job.h"

#include <fmt/format.h>
#include <openssl/rand.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/hash.h"
#include "host/resolve.h"
#include "run/checkpoint/load.h"

namespace tenon::cli {
namespace fs = std::filesystem;

namespace {

std::string random_id() {
  std::array<unsigned char, 8> bytes{};
  RAND_bytes(bytes.data(), static_cast<int>(bytes.size()));
  return hex(bytes);
}

// `path` is where all of it was read.
Status read_into(Job& job, const std::string& path) {
  auto recipe = read_recipe(job.resolved.recipe);
  if (recipe.ok()) {
    job.recipe = std::move(recipe).value();
    return {};
  }
  Error mistake = locate(std::move(recipe).error(), job.resolved);
  if (mistake.place.empty()) mistake.place = path;  // of no part of it
  return mistake;
}

Result<std::string> next_folder(const std::string& name) {
  const fs::path parent = fs::path("runs") / name;
  for (int number = 1; number < 100000; ++number) {
    const fs::path folder = parent / fmt::format("{:03}", number);
    std::error_code error;
    fs::create_directories(parent, error);
    if (error)
      return Error{"E011", "cannot make " + parent.string() + ": " + error.message(), "", "use --run-dir",
                   TENON_E_IO};
    if (fs::create_directory(folder, error)) return folder.string();
  }
  return Error{"E011", "no free run number under " + parent.string(), "", "use --run-dir", TENON_E_IO};
}

Result<std::shared_ptr<const RunFolder>> taken(const std::string& directory) {
  TENON_TRY(RunFolder folder, RunFolder::take(directory));
  return std::make_shared<const RunFolder>(std::move(folder));
}

Result<std::string> wanted_folder(const std::string& wanted) {
  std::error_code error;
  fs::create_directories(wanted, error);
  if (error) return Error{"E011", "cannot make " + wanted + ": " + error.message(), "", "", TENON_E_IO};
  return wanted;
}

std::optional<checkpoint::CheckpointInfo> newest_checkpoint(const Job& job) {
  checkpoint::PosixStorage storage;
  auto newest = checkpoint::find_latest(storage, job.checkpoints(), checkpoint::Depth::kStructure);
  if (!newest.ok()) return std::nullopt;
  return std::move(*newest);
}

Status write_run(const Job& job) {
  const Json run{
      {"tenon", 1},         {"run_id", job.run_id},          {"root", job.root},
      {"ranks", job.ranks}, {"recipe", job.resolved.recipe}, {"provenance", job.resolved.provenance}};
  return write_durably(job.directory, "run.json", run.dump(1) + "\n");
}

// Of a run whose run.json was lost, from what its newest checkpoint says of it; without one there is nothing
// to go by. The answer is for the user.
Result<std::string> rebuild(const std::string& directory) {
  Job job;
  job.directory = directory;
  const auto newest = newest_checkpoint(job);
  if (!newest) return std::string();
  TENON_TRY(const Json meta, parse_json(newest->meta, newest->directory));
  if (!meta.contains("root")) return std::string();
  job.run_id = newest->id.run_id;
  job.root = meta.at("root").get<std::string>();
  job.resolved.recipe = meta.at("recipe");
  TENON_CHECK(write_run(job));
  return fmt::format("warning: {}/run.json was lost, and is made anew from {}\n", directory,
                     newest->directory);
}

Result<std::string> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  if (!in)
    return Error{"R021", "cannot read " + path, "", "name the folder of a run: runs/<name>/<number>",
                 TENON_E_IO};
  return text.str();
}

}  // namespace

Result<Job> job_from_recipe(const Places& places, PluginRegistry& registry, const std::string& path,
                            const std::vector<std::string>& overrides) {
  Job job;
  RecipeRequest request;
  request.path = path;
  request.overrides = overrides;
  request.helper = places.helper;
  request.library = places.library;
  if (!path.ends_with(".json")) {
    TENON_TRY(const Plugin* frontend, registry.load("frontend/lua"));
    request.plugin = frontend->path();
    request.id = frontend->id();
  }
  TENON_TRY(job.resolved, evaluate_recipe(request));
  TENON_CHECK(read_into(job, path));
  std::error_code error;
  job.root = fs::absolute(path, error).lexically_normal().parent_path().string();
  return job;
}

Status create_run(Job& job, const std::string& wanted) {
  TENON_TRY(const std::string directory,
            wanted.empty() ? next_folder(job.recipe.name) : wanted_folder(wanted));
  TENON_TRY(auto folder, taken(directory));
  std::error_code error;
  if (fs::exists(fs::path(directory) / "run.json", error)) {
    return Error{"R020", directory + " holds a run already", "",
                 "tenon resume " + directory + ", or another --run-dir", TENON_E_ARGUMENT};
  }
  job.directory = directory;  // from here on a failed start may clear it
  job.folder = std::move(folder);
  job.run_id = random_id();
  return write_run(job);
}

int64_t steps_saved(const Job& job) {
  const auto newest = newest_checkpoint(job);
  return newest ? newest->id.step : 0;
}

Status check_recipe_kept(const Job& job) {
  const auto newest = newest_checkpoint(job);
  if (!newest) return {};
  TENON_TRY(const Json meta, parse_json(newest->meta, newest->directory));
  const Json before = meta.value("recipe", Json()), &now = job.resolved.recipe;
  const Json changes = Json::diff(before, now);
  if (changes.empty()) return {};
  const Json::json_pointer at(changes[0].at("path").get<std::string>());
  const auto shown = [&at](const Json& recipe) {
    return recipe.contains(at) ? recipe[at].dump() : "not there";
  };
  const std::string more =
      changes.size() > 1 ? fmt::format(" (and {} more changes)", changes.size() - 1) : "";
  return Error{"C022",
               fmt::format("the recipe is not the one of step {}: {} is {}, and was {}{}", newest->id.step,
                           at.to_string(), shown(now), shown(before), more),
               job.directory + "/run.json", "restore the file, or go on with it by --accept-recipe",
               TENON_E_CHECKPOINT};
}

std::string resume_advice(const Job& job) {
  return steps_saved(job) > 0 ? "tenon resume " + job.directory : "";
}

void discard_unstarted(const Job& job) {
  std::error_code error;
  std::vector<fs::path> ours;
  for (const auto& entry : fs::directory_iterator(job.directory, error)) {
    const bool empty = entry.is_regular_file(error) && entry.file_size(error) == 0;
    if (!empty && entry.path().filename() != "run.json") return;
    ours.push_back(entry.path());
  }
  for (const fs::path& path : ours) fs::remove(path, error);
  fs::remove(job.directory, error);
}

Result<Job> job_from_run(const std::string& directory) {
  const std::string path = directory + "/run.json";
  TENON_TRY(const std::string text, read_file(path));
  TENON_TRY(const Json run, parse_json(text, path));
  Job job;
  job.directory = directory;
  try {
    job.run_id = run.at("run_id").get<std::string>();
    job.root = run.at("root").get<std::string>();
    job.ranks = run.value("ranks", 0);
    job.resolved.recipe = run.at("recipe");
    job.resolved.provenance = run.at("provenance").get<std::map<std::string, std::string>>();
  } catch (const Json::exception& e) {
    return Error{"R021", path + " is damaged: " + without_name(e.what()), "", "", TENON_E_IO};
  }
  TENON_CHECK(read_into(job, path));
  return job;
}

Result<Job> job_to_resume(const std::string& directory, std::string& warning) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) return job_from_run(directory);
  TENON_TRY(auto folder, taken(directory));
  if (!fs::exists(directory + "/run.json", error)) {
    TENON_TRY(warning, rebuild(directory));
  }
  TENON_TRY(Job job, job_from_run(directory));
  job.folder = std::move(folder);
  return job;
}

Result<PluginSet> plugins_of(PluginRegistry& registry, const Job& job) {
  auto plugins = load_plugins(registry, job.recipe);
  if (!plugins.ok()) return locate(std::move(plugins).error(), job.resolved);
  return plugins;
}

}  // namespace tenon::cli
