// The tenon command: parses arguments, calls the library, prints, exits. All else lives elsewhere.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

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

Result<int> train(const Places& places, const Arguments& arguments) {
  PluginRegistry registry(places.registry);
  TENON_TRY(Job job, job_from_recipe(places, registry, arguments.target, arguments.overrides));
  TENON_TRY(const PluginSet checked, plugins_of(registry, job));  // before a folder is made
  TENON_CHECK(create_run(job, arguments.run_dir));
  if (!arguments.json) std::cout << "run   " << job.directory << '\n' << std::flush;
  install_stop_handler();
  LaunchOptions options{ranks_for(arguments, job.recipe), false, style_of(arguments), arguments.threads};
  TENON_TRY(const LoopEnd end, launch(places, registry, job, options));
  return finish_run(arguments, job, end);
}

Result<int> resume(const Places& places, const Arguments& arguments) {
  PluginRegistry registry(places.registry);
  TENON_TRY(const Job job, job_from_run(arguments.target));
  install_stop_handler();
  LaunchOptions options{ranks_for(arguments, job.recipe), true, style_of(arguments), arguments.threads};
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
  options.threads = arguments.threads > 0 ? arguments.threads : static_cast<int>(std::thread::hardware_concurrency());
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
    std::cout << Json{{"step", opened->session->steps_done()}, {"loss", eval.loss}, {"tokens", eval.tokens}}.dump() << '\n';
  } else {
    std::cout << fmt::format("step {}  validation loss {:.4f} nats/token over {} tokens\n", opened->session->steps_done(), eval.loss, eval.tokens);
  }
  return 0;
}

Result<int> sample_text(const Places& places, const Arguments& arguments) {
  PluginRegistry registry(places.registry);
  TENON_TRY(const auto opened, open_trained(registry, arguments));
  TENON_TRY(const std::string text, sample(*opened->session, arguments.sample));
  if (arguments.json) std::cout << Json{{"text", text}}.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  else std::cout << text << '\n';
  return 0;
}

struct Planned {
  Job job;
  PluginSet plugins;
  Mesh mesh;
  Compiled compiled;
};

Result<std::unique_ptr<Planned>> plan_recipe(const Places& places, PluginRegistry& registry, const Arguments& arguments) {
  auto out = std::make_unique<Planned>();
  TENON_TRY(out->job, job_from_recipe(places, registry, arguments.target, arguments.overrides));
  TENON_TRY(out->plugins, plugins_of(registry, out->job));
  const auto located = [&](Error error) { return locate(std::move(error), out->job.resolved); };
  auto mesh = resolve_mesh(out->job.recipe.mesh, ranks_for(arguments, out->job.recipe));
  if (!mesh.ok()) return located(std::move(mesh).error());
  out->mesh = std::move(mesh).value();
  TENON_TRY(const CompileOptions options, compile_options(out->job.recipe, out->plugins, out->mesh));
  auto compiled = compile(out->job.recipe, ProgramKind::train, options);
  if (!compiled.ok()) return located(std::move(compiled).error());
  out->compiled = std::move(compiled).value();
  return out;
}

Result<int> check(const Places& places, const Arguments& arguments) {
  PluginRegistry registry(places.registry);
  TENON_TRY(const auto planned, plan_recipe(places, registry, arguments));
  auto feeder = Feeder::open(planned->plugins.data, planned->job.root, planned->job.recipe.context);
  if (!feeder.ok()) return locate(std::move(feeder).error(), planned->job.resolved);
  const std::string data = fmt::format("data: {} samples of {} tokens", (*feeder)->num_samples(), planned->job.recipe.context);
  if (arguments.json) {
    Json passed = planned->compiled.report.passed;
    passed.push_back(data);
    std::cout << Json{{"ok", true}, {"passed", passed}, {"program_sha256", program_hash(planned->compiled.program)}}.dump() << '\n';
    return 0;
  }
  for (const std::string& line : planned->compiled.report.passed) std::cout << "ok    " << line << '\n';
  std::cout << "ok    " << data << "\n0 errors\n";
  return 0;
}

Result<int> plan(const Places& places, const Arguments& arguments) {
  PluginRegistry registry(places.registry);
  TENON_TRY(const auto planned, plan_recipe(places, registry, arguments));
  const Program& program = planned->compiled.program;
  if (arguments.json) {
    Json memory;
    for (size_t i = 0; i < kNumSpaces; ++i) memory[name_of(static_cast<Space>(i))] = program.space_bytes[i];
    std::cout << Json{{"mesh", planned->mesh.text()}, {"memory", memory}, {"flops", program.flops}, {"instructions", program.instrs.size()},
                      {"lanes", program.lanes}, {"microbatches", program.microbatches}, {"program_sha256", program_hash(program)}}.dump() << '\n';
    return 0;
  }
  std::cout << text(program, {.fold = !arguments.unfold});
  uint64_t total = program.kernel_private_bytes;
  for (uint64_t bytes : program.space_bytes) total += bytes;
  std::cout << fmt::format("memory total  {} per rank, {:.2f} GFLOP per rank and step\n", human_bytes(total), program.flops / 1e9);
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
    std::cout << fmt::format("{:<22} {:<8} {}\n", plugin.id, plugin.version, plugin.error ? "cannot be loaded: " + plugin.error->cause : plugin.doc);
  }
  if (arguments.json) std::cout << list.dump() << '\n';
  return 0;
}

Result<int> work(const Places& places, const Arguments& arguments) { return worker_main(places, arguments.worker); }

using Verb = Result<int> (*)(const Places&, const Arguments&);

void add_recipe(CLI::App& verb, Arguments& a) {
  verb.add_option("recipe", a.target, "recipe file (.lua, or resolved .json)")->required();
  verb.add_option("overrides", a.overrides, "key=value for the recipe's parameters");
  verb.add_option("-n,--ranks", a.ranks, "number of ranks")->check(CLI::PositiveNumber);
}

void add_running(CLI::App& verb, Arguments& a) {
  verb.add_option("--threads", a.threads, "threads of each rank (default: cores / ranks)")->check(CLI::PositiveNumber);
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
  r->add_option("-n,--ranks", a.ranks, "number of ranks")->check(CLI::PositiveNumber);
  add_run(*add("eval", "loss on the held-out data", evaluate), a);
  add_recipe(*add("check", "prove that a recipe would run, without running it", check), a);
  CLI::App* p = add("plan", "print mesh, memory and program", plan);
  add_recipe(*p, a);
  p->add_flag("--all", a.unfold, "every microbatch");
  CLI::App* s = add("sample", "write text", sample_text);
  add_run(*s, a);
  s->add_option("--prompt", a.sample.prompt, "text to go on from");
  s->add_option("--length", a.sample.length, "tokens to write")->check(CLI::NonNegativeNumber);
  s->add_option("--temperature", a.sample.temperature, "0: always the likeliest")->check(CLI::NonNegativeNumber);
  s->add_option("--top-k", a.sample.top_k, "choose among the k likeliest; 0: all")->check(CLI::NonNegativeNumber);
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
  if (json) std::cout << Json{{"error", {{"code", error.code}, {"cause", error.cause}, {"place", error.place}, {"fix", error.fix}}}}.dump() << '\n';
  else std::cerr << error.text() << '\n';
  return exit_code_of(error);
}

int main_of(int argc, char** argv) {
  CLI::App app{"Tenon trains deep-learning models from recipes, on one device or many."};
  Arguments arguments;
  Verb verb = nullptr;
  try {
    verb = define(app, arguments, argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const auto places = find_places();
  if (!places.ok()) return print_error(places.error(), arguments.json);
  const auto code = verb(*places, arguments);
  return code.ok() ? *code : print_error(code.error(), arguments.json);
}

}  // namespace
}  // namespace tenon::cli

int main(int argc, char** argv) { return tenon::cli::main_of(argc, argv); }
