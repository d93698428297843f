// Where the time of a training step goes: every kernel and the update, beside the floor that the machine
// sets, in the order of the time that is lost. Arguments: --steps N, --threads N, --json, then a recipe and
// key=value.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "host/recipe/evaluate.h"
#include "host/resolve.h"
#include "meter.h"
#include "probes.h"
#include "run/session.h"

namespace tenon::bench {
namespace {

struct Arguments {
  int steps = 5, threads = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  bool json = false;
  std::string plugins = TENON_PLUGIN_DIR, recipe;
  std::vector<std::string> overrides;
};

Arguments parse(int argc, char** argv) {
  Arguments out;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--json")
      out.json = true;
    else if (word == "--steps" && i + 1 < argc)
      out.steps = std::stoi(argv[++i]);
    else if (word == "--threads" && i + 1 < argc)
      out.threads = std::stoi(argv[++i]);
    else if (word == "--plugins" && i + 1 < argc)
      out.plugins = argv[++i];
    else if (out.recipe.empty())
      out.recipe = word;
    else
      out.overrides.push_back(word);
  }
  return out;
}

// Other work on the machine only ever adds to a time.
double lower_quartile(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 4];
}

struct Line {
  std::string name;
  double calls = 0, seconds = 0, floor = 0;  // of one step
  double flops = 0, bytes = 0;               // per second
  double lost() const { return seconds - floor; }
};

Line line_of(const Record& record, int steps, const Probes& peak) {
  const double time = lower_quartile(record.seconds);
  const double calls = static_cast<double>(record.seconds.size()) / steps;
  return {record.name,         calls,
          calls * time,        calls * std::max(record.flops / peak.flops, record.bytes / peak.bandwidth),
          record.flops / time, record.bytes / time};
}

struct Profile {
  Probes peak{};
  std::vector<Line> lines;
  double step = 0, instructions = 0, tokens = 0;
  double latency[2] = {};  // between cores, before and after the steps
};

Result<Profile> measure(const Arguments& arguments) {
  RecipeRequest request;
  request.path = arguments.recipe;
  request.overrides = arguments.overrides;
  request.helper = TENON_BINARY_DIR "/bin/tenon-recipe";
  request.plugin = TENON_PLUGIN_DIR "/libtenon-frontend-lua.so";
  request.library = TENON_SCRIPTS;
  TENON_TRY(const ResolvedRecipe resolved, evaluate_recipe(request));
  TENON_TRY(const Recipe recipe, read_recipe(resolved.recipe));
  RegistryConfig config;
  config.directories = {arguments.plugins};
  config.default_directories = false;
  PluginRegistry registry(config);
  TENON_TRY(PluginSet plugins, load_plugins(registry, recipe));
  Meter meter(plugins);
  SessionOptions options;
  options.root = std::filesystem::path(arguments.recipe).parent_path().string();
  options.threads = arguments.threads;
  TENON_TRY(const auto session, Session::open(recipe, plugins, options));
  for (int i = 0; i < 2; ++i) TENON_CHECK(session->step());  // caches and pages warm up
  meter.clear();
  Profile out;
  if (arguments.threads > 1) out.latency[0] = core_latency();
  std::vector<double> steps;
  for (int i = 0; i < arguments.steps; ++i) {
    TENON_TRY(const StepResult result, session->step());
    steps.push_back(result.seconds);
    out.tokens = static_cast<double>(result.tokens);
  }
  if (arguments.threads > 1) out.latency[1] = core_latency();
  out.step = lower_quartile(steps);
  out.instructions = static_cast<double>(session->train_program().instrs.size());
  TENON_TRY(const auto pool, ThreadPool::create(arguments.threads));
  out.peak = probe(*pool);
  for (const auto& [name, record] : meter.records()) {
    if (!record.seconds.empty()) out.lines.push_back(line_of(record, arguments.steps, out.peak));
  }
  std::sort(out.lines.begin(), out.lines.end(),
            [](const Line& a, const Line& b) { return a.lost() > b.lost(); });
  return out;
}

double sum_of(const Profile& profile, double Line::*field) {
  double sum = 0;
  for (const Line& line : profile.lines) sum += line.*field;
  return sum;
}

void print_json(const Profile& p) {
  Json kernels = Json::array();
  for (const Line& l : p.lines) {
    kernels.push_back({{"name", l.name},
                       {"calls", l.calls},
                       {"seconds", l.seconds},
                       {"floor_seconds", l.floor},
                       {"flops_per_s", l.flops},
                       {"bytes_per_s", l.bytes}});
  }
  std::cout << Json{{"peak_flops_per_s", p.peak.flops},
                    {"peak_bytes_per_s", p.peak.bandwidth},
                    {"core_latency_ns", {p.latency[0], p.latency[1]}},
                    {"step_seconds", p.step},
                    {"tokens", p.tokens},
                    {"instructions", p.instructions},
                    {"kernels", kernels}}
                   .dump()
            << '\n';
}

void print_table(const Profile& p) {
  std::cout << fmt::format(
      "probes: {:.1f} GFLOP/s, {:.1f} GB/s; core to core {:.0f} ns before, {:.0f} ns after\n",
      p.peak.flops / 1e9, p.peak.bandwidth / 1e9, p.latency[0], p.latency[1]);
  std::cout << fmt::format("{:<44} {:>5} {:>10} {:>9} {:>9} {:>7} {:>10}\n", "lower quartile of the calls",
                           "calls", "ms / step", "GFLOP/s", "GB/s", "floor", "lost ms");
  for (const Line& l : p.lines) {
    std::cout << fmt::format("{:<44} {:>5.0f} {:>10.3f} {:>9.1f} {:>9.1f} {:>6.0f}% {:>10.3f}\n", l.name,
                             l.calls, l.seconds * 1e3, l.flops / 1e9, l.bytes / 1e9,
                             100 * l.floor / l.seconds, l.lost() * 1e3);
  }
  const double kernels = sum_of(p, &Line::seconds), floor = sum_of(p, &Line::floor);
  std::cout << fmt::format("kernels {:.3f} ms, floor {:.3f} ms: {:.0f}%\n", kernels * 1e3, floor * 1e3,
                           100 * floor / kernels);
  std::cout << fmt::format(
      "step {:.3f} ms, {:.0f} tokens/s, {:.0f} instructions, {:.2f} us of each outside of kernels\n",
      p.step * 1e3, p.tokens / p.step, p.instructions, (p.step - kernels) / p.instructions * 1e6);
}

int main_of(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  const auto profile = measure(arguments);
  if (!profile.ok()) {
    std::cerr << profile.error().text() << '\n';
    return 1;
  }
  arguments.json ? print_json(*profile) : print_table(*profile);
  return 0;
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) { return tenon::bench::main_of(argc, argv); }
