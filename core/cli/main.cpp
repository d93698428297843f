// The tenon command: parses arguments, calls the library, prints, exits. All else lives elsewhere.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/bench.h"
#include "cli/checkpoint.h"
#include "cli/exit_code.h"
#include "cli/files.h"
#include "cli/job.h"
#include "cli/launch.h"
#include "cli/plan.h"
#include "cli/sample.h"
#include "cli/stop.h"
#include "cli/tracing.h"
#include "cli/worker.h"
#include "host/resolve.h"
#include "plan/compile/compile.h"
#include "tenon_sdk/suggest.hpp"

namespace tenon::cli {
namespace {

struct Arguments {
  std::string target;                  // recipe, or folder of a run
  std::vector<std::string> overrides;  // key=value
  std::string run_dir;
  int ranks = 0;  // 0: as the recipe's mesh says
  int threads = 0;
  Tracing tracing;
  bool json = false;
  bool markdown = false;
  PlanOptions plan;
  CheckpointOptions checkpoint;
  SampleOptions sample;
  BenchOptions bench;
  WorkerOptions worker;
};

Progress::Style style_of(const Arguments& arguments) {
  if (arguments.json) return Progress::Style::json;
  return isatty(STDOUT_FILENO) != 0 ? Progress::Style::live : Progress::Style::plain;
}

int finish_run(const Arguments& arguments, const Job& job, Result<LoopEnd> end) {
  const bool finished = *end == LoopEnd::finished;
  if (arguments.json) {
    std::cout << Json{{"event", "end"}, {"run", job.directory}, {"finished", finished}}.dump() << '\n';
  } else if (finished) {
    std::cout << "done  " << job.directory << '\n';
  } else {
    std::cout << "stopped and saved; go on with: tenon resume " << job.directory << '\n';
  }
  return finished ? 0 : kExitStopped;
}

PlanOptions plan_options(const Arguments& arguments) {
  PlanOptions out = arguments.plan;
  out.recipe = arguments.target;
  out.overrides = arguments.overrides;
  out.ranks = arguments.ranks;
  out.json = arguments.json;
  return out;
}

Result<int> check(const Places& places, const Arguments& arguments) {
  return check_recipe(places, plan_options(arguments));
}

Result<int> plan(const Places& places, const Arguments& arguments) {
  return print_plan(places, plan_options(arguments));
}

Result<Job> evaluate_job(const Places& places, PluginRegistry& registry, const Arguments& arguments) {
  auto job = job_from_recipe(places, registry, arguments.target, arguments.overrides);
  if (job.ok()) std::cerr << job->resolved.messages << std::flush;  // what the recipe printed
  return job;
}

// Of the newest checkpoint; 0: there is none, which whoever loads it will say.
int64_t steps_saved(const Job& job) {
  checkpoint::PosixStorage storage;
  const auto newest = checkpoint::find_latest(storage, job.checkpoints(), checkpoint::Depth::kStructure);
  return newest.ok() ? newest->id.step : 0;
}

Result<int> train(const Places& places, const Arguments& arguments) {
  PluginRegistry registry(places.registry);
  TENON_TRY(Job job, evaluate_job(places, registry, arguments));
  job.ranks = ranks_for(arguments.ranks, job.recipe);
  TENON_TRY(const PluginSet checked, plugins_of(registry, job));
  TENON_TRY(const Compiled proved,
            compile_job(job, checked, ProgramKind::train, job.ranks));  // before a folder is made
  TENON_TRY(const Tracing tracing, prepare_trace(arguments.tracing, 0, job.recipe.steps));
  TENON_CHECK(create_run(job, arguments.run_dir));
  if (!arguments.json) std::cout << "run   " << job.directory << '\n' << std::flush;
  install_stop_handler();
  const Task task{Task::Kind::train, arguments.threads, style_of(arguments), tracing};
  auto end = launch(places, registry, job, job.ranks, task);
  if (!end.ok()) {
    if (const int code = exit_code_of(end.error()); code == kExitRecipe || code == kExitEnvironment)
      discard_unstarted(job);
    return std::move(end).error();
  }
  return finish_run(arguments, job, *end);
}

// Of a run that was finished before.
int tell_finished(const Job& job) {
  std::cout << fmt::format(
      "finished  {0}: step {1} of {1} is done\n"
      "a run keeps its number of steps; for more, start another: tenon train, with more steps in the recipe\n"
      "to use this one: tenon eval {0}, tenon sample {0}\n",
      job.directory, job.recipe.steps);
  return 0;
}

Result<int> resume(const Places& places, const Arguments& arguments) {
  PluginRegistry registry(places.registry);
  TENON_TRY(const Job job, job_from_run(arguments.target));
  const int64_t saved = steps_saved(job);
  TENON_TRY(const Tracing tracing, prepare_trace(arguments.tracing, saved, job.recipe.steps));
  install_stop_handler();
  const int ranks =
      arguments.ranks == 0 && job.ranks > 0 ? job.ranks : ranks_for(arguments.ranks, job.recipe);
  const Task task{Task::Kind::resume, arguments.threads, style_of(arguments), tracing};
  TENON_TRY(const LoopEnd end, launch(places, registry, job, ranks, task));
  if (end == LoopEnd::finished && saved == job.recipe.steps && !arguments.json) return tell_finished(job);
  return finish_run(arguments, job, end);
}

struct Opened {  // one rank, for eval and sample
  Job job;
  PluginSet plugins;
  std::unique_ptr<Session> session;
};

Result<std::unique_ptr<Opened>> open_trained(PluginRegistry& registry, const Arguments& arguments) {
  auto out = std::make_unique<Opened>();
  TENON_TRY(out->job, job_from_run(arguments.target));
  for (Axis& axis : out->job.recipe.mesh.axes) axis.size = 1;
  TENON_TRY(out->plugins, plugins_of(registry, out->job));
  SessionOptions options;
  options.root = out->job.root;
  options.threads =
      arguments.threads > 0 ? arguments.threads : static_cast<int>(std::thread::hardware_concurrency());
  options.training = false;
  TENON_TRY(out->session, Session::open(out->job.recipe, out->plugins, options));
  checkpoint::PosixStorage storage;
  TENON_TRY(const Loaded from, Checkpoints(*out->session).load(storage, out->job.checkpoints()));
  return out;
}

Result<int> evaluate(const Places& places, const Arguments& arguments) {
  PluginRegistry registry(places.registry);
  TENON_TRY(const auto opened, open_trained(registry, arguments));
  TENON_TRY(const EvalResult eval, opened->session->evaluate());
  if (arguments.json) {
    std::cout
        << Json{{"step", opened->session->steps_done()}, {"loss", eval.loss}, {"tokens", eval.tokens}}.dump()
        << '\n';
  } else {
    std::cout << fmt::format("step {}  validation loss {:.4f} nats/token over {} tokens\n",
                             opened->session->steps_done(), eval.loss, eval.tokens);
  }
  return 0;
}

Result<int> sample_text(const Places& places, const Arguments& arguments) {
  PluginRegistry registry(places.registry);
  TENON_TRY(const auto opened, open_trained(registry, arguments));
  TENON_TRY(const std::string text, sample(*opened->session, arguments.sample));
  if (arguments.json)
    std::cout << Json{{"text", text}}.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  else
    std::cout << text << '\n';
  return 0;
}

Result<int> show_checkpoint(const Places&, const Arguments& arguments) {
  CheckpointOptions options = arguments.checkpoint;
  options.json = arguments.json;
  return inspect_checkpoint(options);
}

// The page docs/reference/plugins.md.
Result<int> print_plugins_page(const PluginRegistry& registry) {
  std::cout << "# Plugins\n\nMade by `scripts/dev/generate-docs` from what the plugins declare; not to be "
               "edited by hand.\n";
  for (const PluginListing& plugin : registry.list()) {
    if (plugin.error) return *plugin.error;
    if (plugin.shadowed) continue;
    std::cout << fmt::format("\n## {}\n\n{}.\n\n", plugin.id, plugin.doc);
    if (plugin.options.empty())
      std::cout << "No options.\n";
    else
      std::cout << "| option | type | default | allowed | what it does |\n|---|---|---|---|---|\n"
                << options_markdown(plugin.options);
  }
  return 0;
}

Result<int> list_plugins(const Places& places, const Arguments& arguments) {
  const PluginRegistry registry(places.registry);
  if (arguments.markdown) return print_plugins_page(registry);
  Json list = Json::array();
  for (const PluginListing& plugin : registry.list()) {
    Json entry{{"id", plugin.id}, {"path", plugin.path}, {"version", plugin.version}, {"doc", plugin.doc}};
    if (plugin.error) entry["error"] = plugin.error->cause;
    list.push_back(entry);
    if (arguments.json || plugin.shadowed) continue;
    std::cout << fmt::format("{:<22} {:<8} {}\n", plugin.id, plugin.version,
                             plugin.error ? "cannot be loaded: " + plugin.error->cause : plugin.doc);
  }
  if (arguments.json) std::cout << list.dump() << '\n';
  return 0;
}

Result<int> measure(const Places& places, const Arguments& arguments) {
  BenchOptions options = arguments.bench;
  options.ranks = arguments.ranks;
  options.threads = arguments.threads;
  options.json = arguments.json;
  return run_bench(places, options);
}

Result<int> work(const Places& places, const Arguments& arguments) {
  return worker_main(places, arguments.worker);
}

using Verb = Result<int> (*)(const Places&, const Arguments&);

CLI::Range positive() { return {1, 1 << 20}; }

void add_recipe(CLI::App& verb, Arguments& a) {
  verb.add_option("recipe", a.target, "recipe file (.lua, or resolved .json)")->required();
  verb.add_option("overrides", a.overrides, "key=value for the recipe's parameters");
  verb.add_option("-n,--ranks,--world", a.ranks, "number of ranks")->check(positive());
}

void add_memory(CLI::App& verb, Arguments& a) {
  verb.add_option("--memory", a.plan.memory, "bytes that a rank has, as 16GiB; refuse what does not fit")
      ->transform(CLI::AsSizeValue(false));
}

void add_running(CLI::App& verb, Arguments& a) {
  verb.add_option("--threads", a.threads, "threads of each rank (default: cores / ranks)")->check(positive());
}

void add_run(CLI::App& verb, Arguments& a) {
  verb.add_option("run", a.target, "folder of a run: runs/<name>/<number>")->required();
  add_running(verb, a);
}

void add_train_options(CLI::App& verb, Arguments& a) {
  add_recipe(verb, a);
  add_running(verb, a);
  verb.add_option("--run-dir", a.run_dir, "folder of the run (default: runs/<name>/<number>)");
  add_trace_options(verb, a.tracing);
}

void add_plan_options(CLI::App& verb, Arguments& a) {
  add_recipe(verb, a);
  add_memory(verb, a);
  verb.add_option("--rank", a.plan.rank, "whose program")->check(CLI::NonNegativeNumber);
  verb.add_flag("--all", a.plan.unfold, "every microbatch");
  verb.add_option("--stage", a.plan.stage, "what is printed on the way: model, placed, joint or program")
      ->check(CLI::IsMember({"model", "placed", "joint", "program"}));
  verb.add_option("--why", a.plan.why, "why these instructions are there, as 12 or 3,12")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb.add_option("--trace", a.plan.trace,
                  "write the simulated step of all stages for a trace viewer (.json)");
  verb.add_option("--svg", a.plan.svg, "write it as a picture (.svg)");
  GivenMachine& machine = a.plan.machine;
  verb.add_option("--flops", machine.flops, "operations a second of a rank, for the simulation")
      ->check(CLI::PositiveNumber);
  verb.add_option("--memory-bandwidth", machine.memory_bytes, "bytes a second of its memory")
      ->check(CLI::PositiveNumber);
  verb.add_option("--link-bandwidth", machine.link_bytes, "bytes a second of its link")
      ->check(CLI::PositiveNumber);
  verb.add_option("--link-latency", machine.link_latency, "seconds for the first byte")
      ->check(CLI::NonNegativeNumber);
}

void add_sample_options(CLI::App& verb, Arguments& a) {
  add_run(verb, a);
  verb.add_option("--prompt", a.sample.prompt, "text to go on from");
  verb.add_option("--length", a.sample.length, "tokens to write")->check(CLI::NonNegativeNumber);
  verb.add_option("--temperature", a.sample.temperature, "0: always the likeliest")
      ->check(CLI::NonNegativeNumber);
  verb.add_option("--top-k", a.sample.top_k, "choose among the k likeliest; 0: all")
      ->check(CLI::NonNegativeNumber);
  verb.add_option("--seed", a.sample.seed, "of the random numbers");
}

void add_bench_options(CLI::App& verb, Arguments& a) {
  verb.add_option("words", a.bench.words, "[kernels|comm|optimizer|step] [recipe] [key=value...]");
  verb.add_option("-n,--ranks", a.ranks, "number of ranks, of comm and step")->check(positive());
  add_running(verb, a);
  verb.add_option("--rounds", a.bench.rounds, "measurements of each thing")->check(CLI::Range(1, 10000));
  verb.add_option("--sizes", a.bench.sizes, "comm: bytes of messages, as 1KiB,4MiB")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(CLI::AsSizeValue(false));
  verb.add_option("--ops", a.bench.collectives, "comm: collectives, as all_reduce,broadcast")
      ->delimiter(',')
      ->allow_extra_args(false);
}

Verb define(CLI::App& app, Arguments& a, int argc, char** argv) {
  std::vector<std::pair<CLI::App*, Verb>> verbs;
  const auto add = [&](const char* name, const char* what, Verb verb) {
    CLI::App* out = app.add_subcommand(name, what);
    out->add_flag("--json", a.json, "print JSON");
    verbs.emplace_back(out, verb);
    return out;
  };
  add_train_options(*add("train", "train a recipe", train), a);
  CLI::App* r = add("resume", "go on with a run from its newest checkpoint", resume);
  add_run(*r, a);
  add_trace_options(*r, a.tracing);
  r->add_option("-n,--ranks", a.ranks, "number of ranks")->check(positive());
  add_run(*add("eval", "loss on the held-out data", evaluate), a);
  CLI::App* c =
      add("check", "prove that a recipe would run on any number of ranks, without running it", check);
  add_recipe(*c, a);
  add_memory(*c, a);
  add_plan_options(*add("plan", "print a rank's mesh, memory and program; draw the step", plan), a);
  add_sample_options(*add("sample", "write text", sample_text), a);
  CLI::App* k = add("checkpoint", "list, verify and print checkpoints", show_checkpoint);
  k->add_option("path", a.checkpoint.path, "folder of a run, of checkpoints, or one checkpoint")->required();
  k->add_flag("--verify", a.checkpoint.verify, "read every byte");
  k->add_option("--tensor", a.checkpoint.tensor, "print a tensor in short");
  add_bench_options(
      *add("bench", "measure kernels, communication, optimizer and steps beside their floors", measure), a);
  CLI::App* l = add("plugins", "list the plugins that can be found", list_plugins);
  l->add_flag("--markdown", a.markdown, "as a reference page, with all options");
  add_worker_options(*add("worker", "one rank of a run; started by train and resume", work), a.worker);
  app.set_version_flag("--version", "tenon " TENON_VERSION);
  app.require_subcommand(1);
  app.parse(argc, argv);
  for (const auto& [verb, run] : verbs) {
    if (verb->parsed()) return run;
  }
  return nullptr;
}

int print_error(const Error& error, bool json) {
  if (json)
    std::cout
        << Json{{"error",
                 {{"code", error.code}, {"cause", error.cause}, {"place", error.place}, {"fix", error.fix}}}}
               .dump()
        << '\n';
  else
    std::cerr << error.text() << '\n';
  return exit_code_of(error);
}

// The first key=value, where the verb works on a run, whose recipe's parameters are fixed; else "".
std::string parameter_of_run(const CLI::App& app, const std::vector<std::string>& arguments) {
  if (app.get_subcommand(arguments[0])->get_option_no_throw("run") == nullptr) return "";
  const auto parameter = std::ranges::find_if(arguments, [](const std::string& argument) {
    return !argument.starts_with('-') && argument.find('=') != std::string::npos;
  });
  return parameter == arguments.end() ? "" : *parameter;
}

// A mistake on the command line, told like all others.
Error usage_error(const CLI::App& app, const std::vector<std::string>& arguments,
                  const CLI::ParseError& error) {
  std::vector<std::string> verbs, options;
  for (const CLI::App* verb :
       app.get_subcommands([](const CLI::App* a) { return !a->get_group().empty(); })) {
    verbs.push_back(verb->get_name());
    if (!verb->parsed()) continue;
    for (const CLI::Option* option : verb->get_options()) {
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    }
  }
  if (options.empty()) {  // no verb
    const std::string near = sdk::did_you_mean(arguments[0], verbs);
    return Error{"R023", "unknown command '" + arguments[0] + "'", "", near.empty() ? "tenon --help" : near,
                 TENON_E_ARGUMENT};
  }
  Error out{"R023", error.what(), "", "tenon " + arguments[0] + " --help", TENON_E_ARGUMENT};
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return out;
  for (const std::string& argument : arguments) {
    const std::string name = argument.substr(0, argument.find('='));
    if (!name.starts_with("--") || std::find(options.begin(), options.end(), name) != options.end()) continue;
    out.cause = "unknown option '" + name + "' for tenon " + arguments[0];
    if (const std::string near = sdk::did_you_mean(name, options); !near.empty()) out.fix = near;
    return out;
  }
  if (const std::string parameter = parameter_of_run(app, arguments); !parameter.empty()) {
    out.cause = fmt::format("tenon {} takes no parameters, got '{}'", arguments[0], parameter);
    out.fix =
        "a run keeps the recipe it was started with; with another one: tenon train <recipe> " + parameter;
  }
  return out;
}

int main_of(int argc, char** argv) {
  CLI::App app{"Tenon trains deep-learning models from recipes, on one device or many.", "tenon"};
  Arguments arguments;
  Verb verb = nullptr;
  try {
    verb = define(app, arguments, argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    const std::vector<std::string> given(argv + 1, argv + argc);
    if (given.empty()) {
      std::cerr << app.help();
      return kExitRecipe;
    }
    const bool json = std::find(given.begin(), given.end(), "--json") != given.end();
    return print_error(usage_error(app, given, error), json);
  }
  const auto places = find_places();
  if (!places.ok()) return print_error(places.error(), arguments.json);
  const auto code = verb(*places, arguments);
  return code.ok() ? *code : print_error(code.error(), arguments.json);
}

}  // namespace
}  // namespace tenon::cli

int main(int argc, char** argv) { return tenon::cli::main_of(argc, argv); }
