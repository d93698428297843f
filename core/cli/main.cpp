// The tenon command: parses arguments, calls the library, prints, exits. All else lives elsewhere.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/suggest.h"
#include "cli/job.h"
#include "cli/launch.h"
#include "cli/sample.h"
#include "host/resolve.h"
#include "plan/compile.h"

namespace tenon::cli {
namespace {

struct Arguments {
  std::string target;                  // recipe, or folder of a run
  std::vector<std::string> overrides;  // key=value
  std::string run_dir;
  int ranks = 0;  // 0: as the recipe's mesh says
  int threads = 0;
  bool json = false;
  bool unfold = false;
  bool markdown = false;
  SampleOptions sample;
  WorkerOptions worker;
};

// A mesh without open axes fixes the number of ranks.
int ranks_for(const Arguments& arguments, const Recipe& recipe) {
  if (arguments.ranks > 0) return arguments.ranks;
  const int64_t fixed = recipe.mesh.world();
  return fixed > 0 ? static_cast<int>(fixed) : 1;
}

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

Result<Job> evaluate_job(const Places& places, PluginRegistry& registry, const Arguments& arguments) {
  auto job = job_from_recipe(places, registry, arguments.target, arguments.overrides);
  if (job.ok()) std::cerr << job->resolved.messages << std::flush;  // what the recipe printed
  return job;
}

// Errors are placed in the recipe's source.
Result<Compiled> compile_for(const Job& job, const PluginSet& plugins, ProgramKind kind, int ranks) {
  const auto located = [&job](Error error) { return locate(std::move(error), job.resolved); };
  auto mesh = resolve_mesh(job.recipe.mesh, ranks);
  if (!mesh.ok()) return located(std::move(mesh).error());
  auto options = compile_options(job.recipe, plugins, *mesh);
  if (!options.ok()) return located(std::move(options).error());
  auto compiled = compile(job.recipe, kind, *options);
  if (!compiled.ok()) return located(std::move(compiled).error());
  return compiled;
}

Result<int> train(const Places& places, const Arguments& arguments) {
  PluginRegistry registry(places.registry);
  TENON_TRY(Job job, evaluate_job(places, registry, arguments));
  job.ranks = ranks_for(arguments, job.recipe);
  TENON_TRY(const PluginSet checked, plugins_of(registry, job));
  TENON_TRY(const Compiled proved,
            compile_for(job, checked, ProgramKind::train, job.ranks));  // before a folder is made
  TENON_CHECK(create_run(job, arguments.run_dir));
  if (!arguments.json) std::cout << "run   " << job.directory << '\n' << std::flush;
  install_stop_handler();
  LaunchOptions options{job.ranks, false, style_of(arguments), arguments.threads};
  auto end = launch(places, registry, job, options);
  if (!end.ok()) {
    if (const int code = exit_code_of(end.error()); code == kExitRecipe || code == kExitEnvironment)
      discard_unstarted(job);
    return std::move(end).error();
  }
  return finish_run(arguments, job, *end);
}

Result<int> resume(const Places& places, const Arguments& arguments) {
  PluginRegistry registry(places.registry);
  TENON_TRY(const Job job, job_from_run(arguments.target));
  install_stop_handler();
  const int ranks = arguments.ranks == 0 && job.ranks > 0 ? job.ranks : ranks_for(arguments, job.recipe);
  LaunchOptions options{ranks, true, style_of(arguments), arguments.threads};
  TENON_TRY(const LoopEnd end, launch(places, registry, job, options));
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
  TENON_TRY(const std::string from, out->session->resume(storage, out->job.checkpoints()));
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

struct Planned {
  Job job;
  PluginSet plugins;
  Compiled compiled;
};

Result<std::unique_ptr<Planned>> plan_recipe(const Places& places, PluginRegistry& registry,
                                             const Arguments& arguments) {
  auto out = std::make_unique<Planned>();
  TENON_TRY(out->job, evaluate_job(places, registry, arguments));
  TENON_TRY(out->plugins, plugins_of(registry, out->job));
  TENON_TRY(out->compiled,
            compile_for(out->job, out->plugins, ProgramKind::train, ranks_for(arguments, out->job.recipe)));
  return out;
}

// That the data can be opened, split, and looked up by the model. Returns the number of samples.
Result<int64_t> check_data(const Planned& planned, int ranks) {
  const Recipe& recipe = planned.job.recipe;
  TENON_TRY(const Compiled eval, compile_for(planned.job, planned.plugins, ProgramKind::eval, ranks));
  TENON_TRY(const auto feeder, Feeder::open(planned.plugins.data, planned.job.root, recipe.context));
  if (auto split = Sampler::create(feeder->num_samples(), recipe.valid, recipe.seed); !split.ok())
    return std::move(split).error();
  TENON_CHECK(check_vocabulary(eval, feeder->token_limit()));
  return feeder->num_samples();
}

Result<int> check(const Places& places, const Arguments& arguments) {
  PluginRegistry registry(places.registry);
  TENON_TRY(const auto planned, plan_recipe(places, registry, arguments));
  auto samples = check_data(*planned, ranks_for(arguments, planned->job.recipe));
  if (!samples.ok()) return locate(std::move(samples).error(), planned->job.resolved);
  const std::string data =
      fmt::format("data: {} samples of {} tokens", *samples, planned->job.recipe.context);
  if (arguments.json) {
    Json passed = planned->compiled.report.passed;
    passed.push_back(data);
    std::cout << Json{{"ok", true},
                      {"passed", passed},
                      {"program_sha256", program_hash(planned->compiled)}}
                     .dump()
              << '\n';
    return 0;
  }
  for (const std::string& line : planned->compiled.report.passed) std::cout << "ok    " << line << '\n';
  std::cout << "ok    " << data << "\n0 errors\n";
  return 0;
}

Result<int> plan(const Places& places, const Arguments& arguments) {
  PluginRegistry registry(places.registry);
  TENON_TRY(const auto planned, plan_recipe(places, registry, arguments));
  const Program& program = planned->compiled.of(0);
  if (arguments.json) {
    Json memory;
    for (size_t i = 0; i < kNumSpaces; ++i) memory[name_of(static_cast<Space>(i))] = program.space_bytes[i];
    std::cout << Json{{"mesh", program.mesh.text()},
                      {"memory", memory},
                      {"flops", program.flops},
                      {"instructions", program.instrs.size()},
                      {"lanes", program.lanes},
                      {"microbatches", program.microbatches},
                      {"program_sha256", program_hash(planned->compiled)}}
                     .dump()
              << '\n';
    return 0;
  }
  std::cout << text(program, {.fold = !arguments.unfold});
  uint64_t total = program.kernel_private_bytes;
  for (uint64_t bytes : program.space_bytes) total += bytes;
  std::cout << fmt::format("memory total  {} per rank, {:.2f} GFLOP per rank and step\n", human_bytes(total),
                           program.flops / 1e9);
  return 0;
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

Result<int> work(const Places& places, const Arguments& arguments) {
  return worker_main(places, arguments.worker);
}

using Verb = Result<int> (*)(const Places&, const Arguments&);

CLI::Range positive() { return {1, 1 << 20}; }

void add_recipe(CLI::App& verb, Arguments& a) {
  verb.add_option("recipe", a.target, "recipe file (.lua, or resolved .json)")->required();
  verb.add_option("overrides", a.overrides, "key=value for the recipe's parameters");
  verb.add_option("-n,--ranks", a.ranks, "number of ranks")->check(positive());
}

void add_running(CLI::App& verb, Arguments& a) {
  verb.add_option("--threads", a.threads, "threads of each rank (default: cores / ranks)")->check(positive());
}

void add_run(CLI::App& verb, Arguments& a) {
  verb.add_option("run", a.target, "folder of a run: runs/<name>/<number>")->required();
  add_running(verb, a);
}

Verb define(CLI::App& app, Arguments& a, int argc, char** argv) {
  std::vector<std::pair<CLI::App*, Verb>> verbs;
  const auto add = [&](const char* name, const char* what, Verb verb) {
    CLI::App* out = app.add_subcommand(name, what);
    out->add_flag("--json", a.json, "print JSON");
    verbs.emplace_back(out, verb);
    return out;
  };
  CLI::App* t = add("train", "train a recipe", train);
  add_recipe(*t, a);
  add_running(*t, a);
  t->add_option("--run-dir", a.run_dir, "folder of the run (default: runs/<name>/<number>)");
  CLI::App* r = add("resume", "go on with a run from its newest checkpoint", resume);
  add_run(*r, a);
  r->add_option("-n,--ranks", a.ranks, "number of ranks")->check(positive());
  add_run(*add("eval", "loss on the held-out data", evaluate), a);
  add_recipe(*add("check", "prove that a recipe would run, without running it", check), a);
  CLI::App* p = add("plan", "print mesh, memory and program", plan);
  add_recipe(*p, a);
  p->add_flag("--all", a.unfold, "every microbatch");
  CLI::App* s = add("sample", "write text", sample_text);
  add_run(*s, a);
  s->add_option("--prompt", a.sample.prompt, "text to go on from");
  s->add_option("--length", a.sample.length, "tokens to write")->check(CLI::NonNegativeNumber);
  s->add_option("--temperature", a.sample.temperature, "0: always the likeliest")
      ->check(CLI::NonNegativeNumber);
  s->add_option("--top-k", a.sample.top_k, "choose among the k likeliest; 0: all")
      ->check(CLI::NonNegativeNumber);
  s->add_option("--seed", a.sample.seed, "of the random numbers");
  CLI::App* l = add("plugins", "list the plugins that can be found", list_plugins);
  l->add_flag("--markdown", a.markdown, "as a reference page, with all options");
  CLI::App* w = add("worker", "one rank of a run; started by train and resume", work);
  w->group("");
  w->add_option("--run-dir", a.worker.directory)->required();
  w->add_option("--rank", a.worker.rank)->required();
  w->add_option("--world", a.worker.world)->required();
  w->add_option("--port", a.worker.port)->required();
  w->add_option("--secret-fd", a.worker.secret_fd)->required();
  w->add_option("--report-fd", a.worker.report_fd)->required();
  w->add_option("--threads", a.worker.threads);
  w->add_option("--style", a.worker.style);
  w->add_flag("--resume", a.worker.resume);
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
  const std::string help = "tenon --help";
  if (arguments.empty()) return Error{"R023", "no command given", "", help, TENON_E_ARGUMENT};
  if (options.empty()) {  // no verb
    const std::string near = did_you_mean(arguments[0], verbs);
    return Error{"R023", "unknown command '" + arguments[0] + "'", "", near.empty() ? help : near,
                 TENON_E_ARGUMENT};
  }
  Error out{"R023", error.what(), "", "tenon " + arguments[0] + " --help", TENON_E_ARGUMENT};
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return out;
  for (const std::string& argument : arguments) {
    const std::string name = argument.substr(0, argument.find('='));
    if (!name.starts_with("--") || std::find(options.begin(), options.end(), name) != options.end()) continue;
    out.cause = "unknown option '" + name + "' for tenon " + arguments[0];
    if (const std::string near = did_you_mean(name, options); !near.empty()) out.fix = near;
    break;
  }
  return out;
}

int main_of(int argc, char** argv) {
  CLI::App app{"Tenon trains deep-learning models from recipes, on one device or many."};
  Arguments arguments;
  Verb verb = nullptr;
  try {
    verb = define(app, arguments, argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    const std::vector<std::string> given(argv + 1, argv + argc);
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
