#include "cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "base/parallel.h"
#include "tenon/base.h"
#include "tenon_sdk/suggest.hpp"

namespace tenon::cli {
namespace {

CLI::Range positive() { return {1, 1 << 20}; }

std::optional<double> number_in(const std::string& text) {
  double out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(out)) return std::nullopt;
  return out;
}

// CLI11's own checks take NaN for a number of any range, and write the ends of ranges in 300 digits.
CLI::Validator number_where(bool (*holds)(double), const char* what, const char* description) {
  return {[holds, what](const std::string& given) {
            const auto number = number_in(given);
            return number && holds(*number) ? "" : fmt::format("wants a number {}, got '{}'", what, given);
          },
          description};
}
// Of a machine: beyond these a step takes no time, or for ever.
CLI::Validator per_second() {
  return number_where([](double x) { return x >= 1 && x <= 1e30; }, "from 1 to 1e30", "POSITIVE");
}
CLI::Validator seconds() {
  return number_where([](double x) { return x >= 0 && x <= 1e9; }, "from 0 to 1e9", "NONNEGATIVE");
}
CLI::Validator from_0() {
  return number_where([](double x) { return x >= 0; }, "from 0 up", "NONNEGATIVE");
}

// CLI11 reads -1 bytes as 2^64 - 1.
CLI::Validator size_in_bytes() {
  return {[](std::string& given) {
            const std::string text = given;
            if (given.find('-') == std::string::npos) {
              std::string wrong = CLI::AsSizeValue(false)(given);
              if (!wrong.empty() || given != "0") return wrong;
            }
            return fmt::format("wants bytes, as 4096 or 16GiB, got '{}'", text);
          },
          "SIZE"};
}

void add_recipe(CLI::App& verb, Arguments& a) {
  verb.add_option("recipe", a.target, "recipe file (.lua, or resolved .json)")->required();
  verb.add_option("overrides", a.overrides, "key=value for the recipe's parameters");
  verb.add_option("-n,--ranks,--world", a.ranks, "number of ranks")->check(positive());
}

void add_memory(CLI::App& verb, Arguments& a) {
  verb.add_option("--memory", a.plan.memory, "bytes that a rank has, as 16GiB; refuse what does not fit")
      ->transform(size_in_bytes());
}

void add_running(CLI::App& verb, Arguments& a) {
  verb.add_option("--threads", a.threads, "threads of each rank (default: cores / ranks)")
      ->check(CLI::Range(1, ThreadPool::kMostThreads));
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
  verb.add_option("--rank", a.plan.rank, "whose program")->check(from_0());
  verb.add_flag("--all", a.plan.unfold, "every microbatch");
  verb.add_option("--stage", a.plan.stage, "what is printed on the way: model, placed, joint or program")
      ->check(CLI::IsMember({"model", "placed", "joint", "program"}));
  verb.add_option("--why", a.plan.why, "why these instructions are there, as 12 or 3,12")
      ->allow_extra_args(false);
  verb.add_option("--trace", a.plan.trace,
                  "write the simulated step of all stages for a trace viewer (.json)");
  verb.add_option("--svg", a.plan.svg, "write it as a picture (.svg)");
  GivenMachine& machine = a.plan.machine;
  verb.add_option("--flops", machine.flops, "operations a second of a rank, for the simulation")
      ->check(per_second());
  verb.add_option("--memory-bandwidth", machine.memory_bytes, "bytes a second of its memory")
      ->check(per_second());
  verb.add_option("--link-bandwidth", machine.link_bytes, "bytes a second of its link")->check(per_second());
  verb.add_option("--link-latency", machine.link_latency, "seconds for the first byte")->check(seconds());
}

void add_sample_options(CLI::App& verb, Arguments& a) {
  add_run(verb, a);
  verb.add_option("--prompt", a.sample.prompt, "text to go on from");
  verb.add_option("--length", a.sample.length, "tokens to write")->check(from_0());
  verb.add_option("--temperature", a.sample.temperature, "0: always the likeliest")->check(from_0());
  verb.add_option("--top-k", a.sample.top_k, "choose among the k likeliest; 0: all")->check(from_0());
  verb.add_option("--seed", a.sample.seed, "of the random numbers")->check(from_0());
}

void add_bench_options(CLI::App& verb, Arguments& a) {
  verb.add_option("words", a.bench.words, "[kernels|comm|optimizer|step] [recipe] [key=value...]");
  verb.add_option("-n,--ranks", a.ranks, "number of ranks, of comm and step")->check(positive());
  add_running(verb, a);
  verb.add_option("--rounds", a.bench.rounds, "measurements of each thing")->check(CLI::Range(1, 10000));
  verb.add_option("--sizes", a.bench.sizes, "comm: bytes of messages, as 1KiB,4MiB")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(size_in_bytes());
  verb.add_option("--ops", a.bench.collectives, "comm: collectives, as all_reduce,broadcast")
      ->delimiter(',')
      ->allow_extra_args(false);
}

std::optional<Verb> parse(CLI::App& app, Arguments& a, int argc, const char* const* argv) {
  std::vector<std::pair<CLI::App*, Verb>> verbs;
  const auto add = [&](const char* name, const char* what, Verb verb) {
    CLI::App* out = app.add_subcommand(name, what);
    out->add_flag("--json", a.json, "print JSON");
    verbs.emplace_back(out, verb);
    return out;
  };
  add_train_options(*add("train", "train a recipe", Verb::train), a);
  CLI::App* r = add("resume", "go on with a run from its newest checkpoint", Verb::resume);
  r->add_flag("--accept-recipe", a.accept_recipe,
              "go on though run.json has another recipe than the checkpoint");
  add_run(*r, a);
  add_trace_options(*r, a.tracing);
  r->add_option("-n,--ranks", a.ranks, "number of ranks")->check(positive());
  add_run(*add("eval", "loss on the held-out data", Verb::eval), a);
  CLI::App* c =
      add("check", "prove that a recipe would run on any number of ranks, without running it", Verb::check);
  add_recipe(*c, a);
  add_memory(*c, a);
  c->add_option("--rank", a.plan.rank, "prove what this rank proves before its first step: its own programs")
      ->check(from_0());
  add_plan_options(*add("plan", "print a rank's mesh, memory and program; draw the step", Verb::plan), a);
  add_sample_options(*add("sample", "write text", Verb::sample), a);
  CLI::App* k = add("checkpoint", "list, verify and print checkpoints", Verb::checkpoint);
  k->add_option("path", a.checkpoint.path, "folder of a run, of checkpoints, or one checkpoint")->required();
  k->add_flag("--verify", a.checkpoint.verify, "read every byte");
  k->add_option("--tensor", a.checkpoint.tensor, "print a tensor in short");
  add_bench_options(
      *add("bench", "measure kernels, communication, optimizer and steps beside their floors", Verb::bench),
      a);
  CLI::App* l = add("plugins", "list the plugins that can be found", Verb::plugins);
  l->add_flag("--markdown", a.markdown, "as a reference page, with all options");
  add_worker_options(*add("worker", "one rank of a run; started by train and resume", Verb::worker),
                     a.worker);
  app.set_version_flag("--version",
                       fmt::format("tenon {}, ABI {}.{}", TENON_VERSION, TENON_ABI_MAJOR, TENON_ABI_MINOR));
  app.require_subcommand(1);
  app.parse(argc, argv);
  for (const auto& [one, verb] : verbs) {
    if (one->parsed()) return verb;
  }
  return std::nullopt;
}

// The first key=value, where the verb works on a run, whose recipe's parameters are fixed; else "".
std::string parameter_of_run(const CLI::App& verb, const std::vector<std::string>& arguments) {
  if (verb.get_option_no_throw("run") == nullptr) return "";
  const auto parameter = std::ranges::find_if(arguments, [](const std::string& argument) {
    return !argument.starts_with('-') && argument.find('=') != std::string::npos;
  });
  return parameter == arguments.end() ? "" : *parameter;
}

// A mistake on the command line, told like all others.
Error usage_error(const CLI::App& app, const std::vector<std::string>& arguments,
                  const CLI::ParseError& error) {
  std::vector<std::string> verbs, options;
  const CLI::App* given = nullptr;
  for (const CLI::App* verb :
       app.get_subcommands([](const CLI::App* a) { return !a->get_group().empty(); })) {
    verbs.push_back(verb->get_name());
    if (!verb->parsed()) continue;
    given = verb;
    for (const CLI::Option* option : verb->get_options()) {
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    }
  }
  if (given == nullptr || arguments[0] != given->get_name()) {  // no verb, or words in front of it
    const std::string near = sdk::did_you_mean(arguments[0], verbs);
    return Error{"R023", "unknown command '" + arguments[0] + "'", "",
                 near.empty() ? fmt::format("one of {}; see tenon --help", fmt::join(verbs, ", ")) : near,
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
  if (const std::string parameter = parameter_of_run(*given, arguments); !parameter.empty()) {
    out.cause = fmt::format("tenon {} takes no parameters, got '{}'", arguments[0], parameter);
    out.fix =
        "a run keeps the recipe it was started with; with another one: tenon train <recipe> " + parameter;
  }
  return out;
}

}  // namespace

Result<CommandLine> parse_command_line(int argc, const char* const* argv) {
  CLI::App app{"Tenon trains deep-learning models from recipes, on one device or many."};
  CommandLine out;
  try {
    out.verb = parse(app, out.arguments, argc, argv);
  } catch (const CLI::ParseError& error) {
    out.asked = error.get_exit_code() == 0;  // --help, --version
    if (!out.asked && argc > 1) return usage_error(app, {argv + 1, argv + argc}, error);
    std::ostringstream text;
    if (out.asked)
      app.exit(error, text, text);
    else
      text << app.help();
    out.text = text.str();
  }
  return out;
}

}  // namespace tenon::cli
