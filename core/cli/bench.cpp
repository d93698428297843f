#include "cli/bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "bench/bench.h"
#include "cli/bench_rank.h"
#include "cli/ending.h"
#include "cli/files.h"
#include "cli/launch.h"
#include "cli/plan.h"
#include "cli/probe.h"
#include "host/resolve.h"
#include "tenon_sdk/suggest.hpp"

namespace tenon::cli {
namespace fs = std::filesystem;

namespace {

const std::vector<std::string>& parts() {
  static const std::vector<std::string> names{"kernels", "comm", "optimizer", "step"};
  return names;
}

// For what a benchmark writes; gone with it.
class Scratch {
 public:
  static Result<std::unique_ptr<Scratch>> make() {
    std::string name = (fs::temp_directory_path() / "tenon-bench-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      return Error{"E011", "cannot make " + name, "", "a folder for temporary files: TMPDIR", TENON_E_IO};
    return std::unique_ptr<Scratch>(new Scratch(name));
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string at(const std::string& name) const { return path_ + "/" + name; }

 private:
  explicit Scratch(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

struct Request {
  std::vector<std::string> parts;
  std::string recipe;  // "": the default
  std::vector<std::string> overrides;
};

bool is_recipe(const std::string& word) { return word.ends_with(".lua") || word.ends_with(".json"); }

Result<Request> read_words(const std::vector<std::string>& words) {
  Request out;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (i == 0 && std::ranges::count(parts(), word) > 0) {
      out.parts = {word};
    } else if (word.find('=') != std::string::npos) {
      out.overrides.push_back(word);
    } else if (is_recipe(word) && out.recipe.empty()) {
      out.recipe = word;
    } else if (is_recipe(word)) {
      return Error{"R023", "a second recipe: '" + word + "'", "", "tenon bench --help", TENON_E_ARGUMENT};
    } else {
      const std::string near = sdk::did_you_mean(word, parts());
      return Error{
          "R023", "unknown benchmark '" + word + "'", "",
          near.empty() ? fmt::format("{}, or a recipe (.lua, .json)", fmt::join(parts(), ", ")) : near,
          TENON_E_ARGUMENT};
    }
  }
  if (out.parts.empty()) out.parts = parts();
  return out;
}

// Bytes that are no text, but can be trained on.
std::string made_up_text() {
  std::string out(size_t{1} << 20, ' ');
  uint32_t state = 1;
  for (char& c : out) {
    state = state * 1664525u + 1013904223u;
    c = static_cast<char>('a' + (state >> 24) % 26);
  }
  return out;
}

class Bench {
 public:
  Bench(const Places& places, const BenchOptions& options, const Scratch& scratch)
      : places_(places), options_(options), scratch_(scratch), registry_(places.registry) {}

  Status run(const Request& request) {
    TENON_CHECK(check());
    TENON_CHECK(open(request));
    for (const std::string& part : request.parts) TENON_CHECK(run_part(part, request.recipe.empty()));
    return {};
  }

 private:
  Status check() {
    const std::vector<std::string> known = bench::collective_names();
    for (const std::string& name : options_.collectives) {
      if (std::ranges::count(known, name) > 0) continue;
      const std::string near = sdk::did_you_mean(name, known);
      return Error{"R005", "no collective '" + name + "'", "--ops",
                   near.empty() ? fmt::format("{}", fmt::join(known, ", ")) : near, TENON_E_ARGUMENT};
    }
    return {};
  }

  Status open(const Request& request) {
    std::string recipe = request.recipe;
    std::vector<std::string> overrides = request.overrides;
    if (recipe.empty()) {
      recipe = places_.library + "/recipes/gpt2-124m.lua";
      const std::string text = scratch_.at("text.txt");
      TENON_CHECK(write_file(text, made_up_text()));
      if (std::ranges::none_of(overrides, [](const auto& o) { return o.starts_with("file="); }))
        overrides.push_back("file=" + text);
    }
    auto job = job_from_recipe(places_, registry_, recipe, overrides);
    if (!job.ok()) return with_plugins(std::move(job).error());
    job_ = std::move(*job);
    std::cerr << job_.resolved.messages << std::flush;
    return {};
  }

  // key=value looks as if it could reach what is measured: options of plugins, which recipes name.
  static Error with_plugins(Error error) {
    if (error.code != "R013") return error;
    if (!error.fix.empty()) error.fix += "; ";
    error.fix +=
        "kernels and their options are a recipe's: tenon bench kernels r.lua, where it has kernels = "
        "t.plugin(\"kernels/cpu\", { isa = \"avx2\" })";
    return error;
  }

  int ranks_of(const std::string& part) const {
    if (part == "kernels" || part == "optimizer") return 1;
    const int ranks = ranks_for(options_.ranks, job_.recipe);
    return part == "comm" && options_.ranks == 0 ? std::max(2, ranks) : ranks;
  }

  bench::Settings settings_of(int ranks) const {
    bench::Settings out{threads_of_rank(options_.threads, ranks), options_.rounds, options_.sizes,
                        options_.collectives};
    if (out.sizes.empty()) {
      for (uint64_t bytes = 1024; bytes <= (64u << 20); bytes *= 4) out.sizes.push_back(bytes);
    }
    return out;
  }

  Status run_part(const std::string& part, bool all_optimizers) {
    const double before = bench::core_latency();
    TENON_TRY(Json report, measure(part, all_optimizers));
    report["bench"] = part;
    report["core_latency_ns"] = {before, bench::core_latency()};
    std::cout << (options_.json ? printable(report) + "\n" : bench::table_of(report) + "\n");
    flush_output();  // the next part takes minutes
    return {};
  }

  Result<Json> measure(const std::string& part, bool all_optimizers) {
    if (part == "optimizer") return measure_optimizers(all_optimizers);
    if (part != "kernels") return measure_ranks(part);
    TENON_TRY(const PluginSet plugins, plugins_of(registry_, job_));
    return located(bench::measure_kernels(job_.recipe, plugins, settings_of(1)));
  }

  // The recipe's, or each that is found, with the options that it has by itself.
  Result<Json> measure_optimizers(bool all) {
    std::vector<std::string> ids;
    for (const PluginListing& plugin : registry_.list(probe)) {
      if (all && plugin.id.starts_with("optimizer/") && !plugin.shadowed && !plugin.error)
        ids.push_back(plugin.id);
    }
    Json out;
    for (size_t i = 0; i < std::max<size_t>(ids.size(), 1); ++i) {
      Job job = job_;
      if (all) {
        job.recipe.optimizer = {ids[i], "{}", job.recipe.optimizer.pointer};
        job.recipe.groups.clear();
      }
      TENON_TRY(const PluginSet plugins, plugins_of(registry_, job));
      TENON_TRY(Json report, located(bench::measure_optimizer(job.recipe, plugins, settings_of(1))));
      if (i == 0)
        out = std::move(report);
      else
        out["rows"].push_back(std::move(report["rows"][0]));
    }
    return out;
  }

  // By ranks as `train` starts them; the request and the report pass through the job's folder.
  Result<Json> measure_ranks(const std::string& part) {
    Job job = job_;
    job.ranks = ranks_of(part);
    TENON_TRY(const PluginSet plugins, plugins_of(registry_, job));
    if (part == "comm" && job.ranks < 2)
      return Error{"R005", "communication of 1 rank", "-n", "2 or more", TENON_E_ARGUMENT};
    if (part == "step") TENON_CHECK(check_job(job, plugins, job.ranks));
    TENON_CHECK(create_run(job, scratch_.at(part)));
    const bench::Settings settings = settings_of(job.ranks);
    TENON_CHECK(ask_ranks(job, part, settings));
    Task task;
    task.kind = Task::Kind::bench;
    task.threads = settings.threads;
    TENON_CHECK(launch(places_, registry_, job, job.ranks, task));
    return report_of_ranks(job);
  }

  Result<Json> located(Result<Json> report) const {
    if (report.ok()) return report;
    return locate(std::move(report).error(), job_.resolved);
  }

  const Places& places_;
  const BenchOptions& options_;
  const Scratch& scratch_;
  PluginRegistry registry_;
  Job job_;
};

}  // namespace

Result<int> run_bench(const Places& places, const BenchOptions& options) {
  TENON_TRY(const Request request, read_words(options.words));
  TENON_TRY(const auto scratch, Scratch::make());
  TENON_CHECK(Bench(places, options, *scratch).run(request));
  return 0;
}

}  // namespace tenon::cli
