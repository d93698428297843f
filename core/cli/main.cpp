// The tenon command: calls the library as the command line says, prints, exits. All else lives elsewhere.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/trail.h"
#include "cli/command_line.h"
#include "cli/ending.h"
#include "cli/exit_code.h"
#include "cli/files.h"
#include "cli/job.h"
#include "cli/launch.h"
#include "cli/probe.h"
#include "cli/stop.h"
#include "cli/supervise.h"
#include "host/resolve.h"
#include "plan/compile/compile.h"

namespace tenon::cli {
namespace {

// Whether the terminal can write a line anew. One that names no kind may be anything.
bool can_erase(const char* kind) {
  return kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
}

Progress::Style style_of(const Arguments& arguments) {
  if (arguments.json) return Progress::Style::json;
  const bool live = isatty(STDOUT_FILENO) != 0 && can_erase(std::getenv("TERM"));
  return live ? Progress::Style::live : Progress::Style::plain;
}

int finish_run(const Arguments& arguments, const Job& job, LoopEnd end) {
  const bool finished = end == LoopEnd::finished;
  if (arguments.json) {
    std::cout << printable(Json{{"event", "end"}, {"run", job.directory}, {"finished", finished}}) << '\n';
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

// Its plugins are gone when it returns: one that fails at its end has failed the run.
Result<LoopEnd> start_run(const Places& places, const Arguments& arguments, Job& job) {
  PluginRegistry registry(places.registry);
  TENON_TRY(job, evaluate_job(places, registry, arguments));
  job.ranks = ranks_for(arguments.ranks, job.recipe);
  TENON_TRY(const PluginSet checked, plugins_of(registry, job));
  TENON_CHECK(check_job(job, checked, job.ranks));  // before a folder is made
  TENON_TRY(const Tracing tracing, prepare_trace(arguments.tracing, 0, job.recipe.steps));
  TENON_CHECK(create_run(job, arguments.run_dir));
  if (!arguments.json) std::cout << "run   " << job.directory << '\n' << std::flush;
  install_stop_handler();
  const Task task{Task::Kind::train, arguments.threads, style_of(arguments), tracing};
  TENON_TRY(const LoopEnd end, launch(places, registry, job, job.ranks, task));
  TENON_CHECK(job.folder->check_in_place());
  return end;
}

Result<int> train(const Places& places, const Arguments& arguments) {
  Job job;
  const auto end = start_run(places, arguments, job);
  if (end.ok()) return finish_run(arguments, job, *end);
  if (const int code = exit_code_of(end.error()); code == kExitRecipe || code == kExitEnvironment)
    discard_unstarted(job);
  return end.error();
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

Result<LoopEnd> go_on(const Places& places, const Arguments& arguments, const Job& job, int64_t saved) {
  PluginRegistry registry(places.registry);
  TENON_TRY(const Tracing tracing, prepare_trace(arguments.tracing, saved, job.recipe.steps));
  trail::advise(resume_advice(job));
  install_stop_handler();
  const int ranks =
      arguments.ranks == 0 && job.ranks > 0 ? job.ranks : ranks_for(arguments.ranks, job.recipe);
  const Task task{Task::Kind::resume, arguments.threads, style_of(arguments), tracing};
  TENON_TRY(const LoopEnd end, launch(places, registry, job, ranks, task));
  TENON_CHECK(job.folder->check_in_place());
  return end;
}

Result<int> resume(const Places& places, const Arguments& arguments) {
  std::string warning;
  TENON_TRY(const Job job, job_to_resume(arguments.target, warning));
  std::cerr << warning;
  if (!arguments.accept_recipe) TENON_CHECK(check_recipe_kept(job));
  const int64_t saved = steps_saved(job);
  TENON_TRY(const LoopEnd end, go_on(places, arguments, job, saved));
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
    std::cout << printable(Json{{"text", text}}) << '\n';
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
  for (const PluginListing& plugin : registry.list(probe)) {
    if (plugin.error) return *plugin.error;
    if (plugin.shadowed) continue;
    std::cout << fmt::format("\n## {}\n\n{}.\n\n", plugin.id, plugin.doc);
    if (plugin.options.empty())
      std::cout << "No options.\n";
    else
      std::cout << "| option | type | default | allowed | what it does |\n|---|---|---|---|---|\n"
                << plugin.options;
  }
  return 0;
}

Result<int> list_plugins(const Places& places, const Arguments& arguments) {
  const PluginRegistry registry(places.registry);
  if (arguments.markdown) return print_plugins_page(registry);
  Json list = Json::array();
  for (const PluginListing& plugin : registry.list(probe)) {
    Json entry{{"id", plugin.id}, {"path", plugin.path}, {"version", plugin.version}, {"doc", plugin.doc}};
    if (plugin.error) entry["error"] = plugin.error->cause;
    list.push_back(entry);
    if (arguments.json || plugin.shadowed) continue;
    std::cout << fmt::format("{:<22} {:<8} {}\n", plugin.id, plugin.version,
                             plugin.error ? "cannot be loaded: " + plugin.error->cause : plugin.doc);
  }
  if (arguments.json) std::cout << printable(list) << '\n';
  return 0;
}

Result<int> measure(const Places& places, const Arguments& arguments) {
  BenchOptions options = arguments.bench;
  options.ranks = arguments.ranks;
  options.threads = arguments.threads;
  options.json = arguments.json;
  return run_bench(places, options);
}

Result<int> work(const Places& places, const Arguments& arguments) { worker_main(places, arguments.worker); }

using Run = Result<int> (*)(const Places&, const Arguments&);

Run run_of(Verb verb) {
  switch (verb) {
    case Verb::train: return train;
    case Verb::resume: return resume;
    case Verb::eval: return evaluate;
    case Verb::check: return check;
    case Verb::plan: return plan;
    case Verb::sample: return sample_text;
    case Verb::checkpoint: return show_checkpoint;
    case Verb::bench: return measure;
    case Verb::plugins: return list_plugins;
    case Verb::worker: return work;
  }
  return nullptr;
}

// A worker's launcher watches over it; plugins are looked at from processes of their own.
bool runs_plugins(Verb verb) {
  return verb != Verb::worker && verb != Verb::plugins && verb != Verb::checkpoint;
}

int print_error(const Error& error, bool json) {
  // What follows the first line of a place is an excerpt, for eyes.
  const std::string place = error.place.substr(0, error.place.find('\n'));
  if (json)
    std::cout << printable(Json{
                     {"error",
                      {{"code", error.code}, {"cause", error.cause}, {"place", place}, {"fix", error.fix}}}})
              << '\n';
  else
    std::cerr << error.text() << '\n';
  return exit_code_of(error);
}

int main_of(int argc, char** argv) {
  const auto line = parse_command_line(argc, argv);
  if (!line.ok()) {
    const bool json =
        std::any_of(argv + 1, argv + argc, [](std::string_view word) { return word == "--json"; });
    return print_error(line.error(), json);
  }
  const Arguments& arguments = line->arguments;
  if (!line->verb) {
    (line->asked ? std::cout : std::cerr) << line->text;
    return line->asked ? 0 : kExitRecipe;
  }
  const auto places = find_places();
  if (!places.ok()) return print_error(places.error(), arguments.json);
  const auto tell = [&](const Error& error) { return print_error(error, arguments.json); };
  const auto run = [&] {
    const auto code = run_of(*line->verb)(*places, arguments);
    if (!code.ok()) return tell(code.error());
    const Status written = check_output();
    return written.ok() ? *code : print_error(written.error(), false);
  };
  return runs_plugins(*line->verb) ? supervise(run, tell) : run();
}

}  // namespace
}  // namespace tenon::cli

int main(int argc, char** argv) { return tenon::cli::main_of(argc, argv); }
