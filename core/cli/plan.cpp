#include "cli/plan.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <charconv>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "cli/files.h"
#include "cli/machine.h"
#include "cli/progress.h"
#include "host/resolve.h"
#include "plan/show/blocks.h"
#include "plan/show/stages.h"
#include "run/loop.h"
#include "run/session.h"

namespace tenon::cli {
namespace {

// The memory that each rank of a class has for its programs.
struct ClassMemory {
  std::string name;
  RankMemory rank;
  uint64_t total() const { return rank.total(); }
};

struct Planned {
  Job job;
  PluginSet plugins;
  int ranks = 1;
  CompileOptions options;
  Compiled compiled;
  std::vector<ClassMemory> classes;
  std::string hash;    // of the programs of training
  double seconds = 0;  // of one core, to compile and verify
};

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

uint64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

std::string class_name(const Program& program) {
  if (program.pipeline_axis == kNone) return "every rank";
  return fmt::format("{} {}", program.mesh.axes[program.pipeline_axis].name, program.class_index);
}

// Programs of several kinds share the memory of their class.
void add_memory(const Program& program, std::vector<ClassMemory>& classes) {
  const std::string name = class_name(program);
  auto it = std::ranges::find(classes, name, &ClassMemory::name);
  if (it == classes.end()) it = classes.insert(it, {name, {}});
  it->rank.add(program);
}

const ClassMemory& largest_of(const std::vector<ClassMemory>& classes) {
  return *std::ranges::max_element(classes, {}, &ClassMemory::total);
}

// The recipe with a change, compiled; its peak, or nothing where that is no plan.
std::optional<uint64_t> peak_with(const Planned& planned, const Json& document) {
  auto recipe = read_recipe(document);
  if (!recipe.ok()) return std::nullopt;
  std::vector<ClassMemory> classes;
  const auto compiler = Compiler::open(*recipe, planned.options);
  const auto add = [&](const Program& program) { add_memory(program, classes); };
  if (!compiler.ok() || !compiler->each(ProgramKind::train, add).ok()) return std::nullopt;
  return largest_of(classes).total();
}

// The smallest increase of microbatches that fits, as advice; "" where none does.
std::string what_would_fit(const Planned& planned, uint64_t memory) {
  Json document = Json::parse(planned.job.recipe.document);
  for (int64_t n = planned.job.recipe.microbatches * 2; n <= planned.job.recipe.batch; n *= 2) {
    document["microbatches"] = n;
    const auto peak = peak_with(planned, document);
    if (peak && *peak <= memory) return fmt::format("microbatches = {} needs {}", n, human_bytes(*peak));
  }
  return "";
}

Status check_memory_limit(const Planned& planned, uint64_t memory) {
  const ClassMemory& largest = largest_of(planned.classes);
  const uint64_t peak = largest.total();
  if (memory == 0 || peak <= memory) return {};
  std::string parts;
  for (size_t i = 0; i < kNumSpaces; ++i) {
    parts += fmt::format("{}{} {}", i == 0 ? "" : ", ", name_of(static_cast<Space>(i)),
                         human_bytes(largest.rank.spaces[i]));
  }
  const std::string fits = what_would_fit(planned, memory);
  const bool near = human_bytes(peak) == human_bytes(memory);  // what both are said to be is no answer then
  const auto said = [near](uint64_t bytes) {
    return near ? fmt::format("{} bytes", bytes) : human_bytes(bytes);
  };
  return locate(
      Error{"P035", fmt::format("a rank needs {} ({}), and has {}", said(peak), parts, said(memory)),
            "/batch",
            (fits.empty() ? "" : fits + "; or ") +
                std::string("more ranks, a higher stage of parallel/zero, more parallel/tensor"),
            TENON_E_MEMORY},
      planned.job.resolved);
}

Result<CompileOptions> options_of(const Job& job, const PluginSet& plugins, int ranks) {
  auto mesh = resolve_mesh(job.recipe.mesh, ranks);
  if (!mesh.ok()) return locate(std::move(mesh).error(), job.resolved);
  auto options = compile_options(job.recipe, plugins, *mesh);
  if (!options.ok()) return locate(std::move(options).error(), job.resolved);
  return options;
}

// All that it takes to compile.
Result<std::unique_ptr<Planned>> read_plan(const Places& places, PluginRegistry& registry,
                                           const PlanOptions& options) {
  auto out = std::make_unique<Planned>();
  TENON_TRY(out->job, job_from_recipe(places, registry, options.recipe, options.overrides));
  std::cerr << out->job.resolved.messages << std::flush;  // what the recipe printed
  TENON_TRY(out->plugins, plugins_of(registry, out->job));
  out->ranks = ranks_for(options.ranks, out->job.recipe);
  TENON_TRY(out->options, options_of(out->job, out->plugins, out->ranks));
  return out;
}

// The programs of training, which are kept.
Status compile_plan(Planned& planned) {
  auto compiled = compile(planned.job.recipe, ProgramKind::train, planned.options);
  if (!compiled.ok()) return locate(std::move(compiled).error(), planned.job.resolved);
  planned.compiled = std::move(*compiled);
  std::vector<std::string> hashes;
  for (const Program& program : planned.compiled.programs) {
    add_memory(program, planned.classes);
    hashes.push_back(program_hash(program));
  }
  planned.hash = plan_hash(planned.compiled, hashes);
  return {};
}

// All programs of a run, class by class, as its ranks compile them before their first step; or, given a
// rank, what that one does. None is kept.
Status prove_plan(Planned& planned, std::optional<int64_t> rank) {
  const double start = cpu_seconds();
  const auto compiler = Compiler::open(planned.job.recipe, planned.options);
  if (!compiler.ok()) return locate(compiler.error(), planned.job.resolved);
  for (ProgramKind kind : {ProgramKind::train, ProgramKind::eval, ProgramKind::logits}) {
    std::vector<std::string> hashes;
    const auto visit = [&](const Program& program) {
      add_memory(program, planned.classes);
      if (kind == ProgramKind::train) hashes.push_back(program_hash(program));
    };
    auto compiled = rank ? compiler->of_rank(*rank, kind) : compiler->each(kind, visit);
    if (!compiled.ok()) return locate(std::move(compiled).error(), planned.job.resolved);
    std::ranges::for_each(compiled->programs, visit);
    if (kind != ProgramKind::train) {
      TENON_CHECK(check_alike(compiled->classes, planned.compiled.classes));
      continue;
    }
    planned.compiled = std::move(*compiled);
    planned.hash = plan_hash(planned.compiled, hashes);
  }
  planned.seconds = cpu_seconds() - start;
  return {};
}

Status check_rank(const Planned& planned, int64_t rank) {
  const int64_t world = planned.options.mesh.world();
  if (rank < world) return {};
  return Error{"R025", fmt::format("rank {} of a world of {}", rank, world), "--rank",
               fmt::format("0 to {}", world - 1), TENON_E_ARGUMENT};
}

// That the data can be opened, split, and looked up by the model. Returns the number of samples.
Result<int64_t> check_data(const Planned& planned) {
  const Recipe& recipe = planned.job.recipe;
  TENON_TRY(const auto feeder, Feeder::open(planned.plugins.data, planned.job.root, recipe.context));
  if (auto split = Sampler::create(feeder->num_samples(), recipe.valid, recipe.seed); !split.ok())
    return std::move(split).error();
  TENON_CHECK(check_evaluation(recipe));
  TENON_CHECK(check_vocabulary(planned.compiled, feeder->token_limit()));
  return feeder->num_samples();
}

// Where a rank is, and with whom: one line for each axis, and for each set of axes that it exchanges over.
std::string place_of(const Program& program, int64_t rank) {
  const Mesh& mesh = program.mesh;
  const auto at = mesh.coordinate(rank);
  std::string out = fmt::format("rank {}", rank);
  for (size_t i = 0; i < at.size(); ++i) out += fmt::format(" {} {}", mesh.axes[i].name, at[i]);
  out += "\n";
  std::set<std::vector<AxisId>> sets;
  for (AxisId axis = 0; axis < mesh.axes.size(); ++axis) sets.insert({axis});
  for (const Instr& instr : program.instrs) {
    if (instr.lane != 0) sets.insert(instr.axes);
  }
  for (const auto& axes : sets) {
    const auto members = mesh.group(rank, axes);
    constexpr size_t kShown = 16;
    const size_t shown = std::min(members.size(), kShown);
    out += fmt::format("group {}: {}{}\n", mesh.names(axes),
                       fmt::join(members.begin(), members.begin() + static_cast<ptrdiff_t>(shown), " "),
                       members.size() > shown ? fmt::format(" ... ({} ranks)", members.size()) : "");
  }
  return out;
}

Status draw(const PlanOptions& options, const Planned& planned, const Simulation& simulation) {
  const std::vector<Program>& programs = planned.compiled.programs;
  const Program& any = programs.front();
  if (!options.svg.empty()) {
    Caption caption = in_unit_for(simulation.seconds);
    caption.title = fmt::format("{}: a step on {}, {:.1f}% idle", planned.job.recipe.name, any.mesh.text(),
                                100 * simulation.idle_fraction());
    caption.subtitle = "simulated on " + description_of(options.machine);
    caption.rank = any.pipeline_axis == kNone ? "" : any.mesh.axes[any.pipeline_axis].name;
    TENON_CHECK(write_file(options.svg, svg_of(blocks_of(programs, simulation), caption)));
  }
  if (!options.trace.empty())
    TENON_CHECK(write_file(options.trace, chrome_trace_of(instrs_of(programs, simulation), 1e6)));
  return {};
}

RecipeSource source_of(const Job& job) {
  RecipeSource out{[&job](const std::string& pointer) { return place_of(job.resolved, pointer); }, {}};
  for (size_t i = 0; i < job.recipe.strategies.size(); ++i)
    out.strategies[job.recipe.strategies[i].id] = fmt::format("/strategies/{}", i);
  return out;
}

Error no_answer(std::string cause, const std::string& option, const std::string& fix) {
  return Error{"R026", std::move(cause), option, fix, TENON_E_ARGUMENT};
}

// --why and --stage, each alone; what is of the program goes with no other stage.
Status check_questions(const PlanOptions& options) {
  const std::pair<const char*, bool> of_programs[] = {
      {"--why", !options.why.empty()},
      {"--json", options.json},
      {"--rank", options.rank.has_value()},
      {"--all", options.unfold},
  };
  for (const auto& [option, given] : of_programs) {
    if (given && options.stage != "program")
      return no_answer(fmt::format("{} is of the program, not of stage '{}'", option, options.stage), option,
                       "leave one of the two out");
  }
  if (options.json && !options.why.empty())
    return no_answer("--json has the reasons of every instruction", "--why", "leave --why out");
  return {};
}

// The instructions that --why names.
Result<std::vector<InstrId>> asked_of(const std::vector<std::string>& given, const Program& program) {
  std::vector<InstrId> out;
  const std::string allowed = fmt::format("0 to {}, as 12 or 3,12", program.instrs.size() - 1);
  for (const std::string& list : given) {
    for (size_t first = 0; first <= list.size();) {
      const size_t end = std::min(list.find(',', first), list.size());
      const std::string word = list.substr(first, end - first);
      int64_t id = 0;
      const auto [rest, failed] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (failed == std::errc::invalid_argument || rest != word.data() + word.size())
        return no_answer(fmt::format("'{}' is no list of instructions: '{}' is not a number", list, word),
                         "--why", allowed);
      if (failed != std::errc{} || id < 0 || id >= static_cast<int64_t>(program.instrs.size()))
        return no_answer(fmt::format("instruction {} of a program of {}", word, program.instrs.size()),
                         "--why", allowed);
      out.push_back(static_cast<InstrId>(id));
      first = end + 1;
    }
  }
  return out;
}

std::string answers(const Program& program, const Planned& planned, const std::vector<InstrId>& asked,
                    const PlanOptions& options) {
  std::string out;
  const RecipeSource source = source_of(planned.job);
  const Machine machine = machine_of(options.machine);
  const Graphs graphs = graphs_of(planned.job.recipe, planned.options);
  for (InstrId id : asked) out += text(why(program, id, *graphs.joint, source, machine)) + '\n';
  return out + fmt::format("machine       {}\n", description_of(options.machine));
}

Json plan_json(const Program& program, const Planned& planned, const Simulation& simulation,
               const PlanOptions& options) {
  Json memory;
  for (size_t i = 0; i < kNumSpaces; ++i) memory[name_of(static_cast<Space>(i))] = program.space_bytes[i];
  const int64_t rank = options.rank.value_or(0);
  const Graphs graphs = graphs_of(planned.job.recipe, planned.options);
  return {{"mesh", program.mesh.text()},
          {"rank", rank},
          {"coordinate", program.mesh.coordinate(rank)},
          {"memory", memory},
          {"flops", program.flops},
          {"instructions", program.instrs.size()},
          {"program",
           instructions_json(program, *graphs.joint, source_of(planned.job), machine_of(options.machine))},
          {"lanes", program.lanes},
          {"microbatches", program.microbatches},
          {"machine", json_of(options.machine)},
          {"simulated_seconds", simulation.seconds},
          {"idle_fraction", simulation.idle_fraction()},
          {"program_sha256", planned.hash}};
}

std::string plan_text(const Program& program, const Planned& planned, const Simulation& simulation,
                      const PlanOptions& options) {
  const Machine machine = machine_of(options.machine);
  std::vector<ClassMemory> memory;
  add_memory(program, memory);
  return place_of(program, options.rank.value_or(0)) + text(program, {.fold = !options.unfold}) +
         fmt::format("memory total  {} per rank, {:.2f} GFLOP per rank and step\n",
                     human_bytes(memory.front().total()), program.flops / 1e9) +
         fmt::format("machine       {}\n", description_of(options.machine)) +
         fmt::format("simulated     {:.6g} s a step, compute idle {:.1f}%, {:.1f}% of communication hidden\n",
                     simulation.seconds, 100 * simulation.idle_fraction(),
                     100 * hidden_fraction(simulation, planned.compiled.programs, machine));
}

}  // namespace

int ranks_for(int given, const Recipe& recipe) {
  if (given > 0) return given;
  const int64_t fixed = recipe.mesh.world();
  return fixed > 0 ? static_cast<int>(fixed) : 1;
}

Status check_job(const Job& job, const PluginSet& plugins, int ranks) {
  TENON_TRY(const CompileOptions options, options_of(job, plugins, ranks));
  const auto prove = [&]() -> Status {
    TENON_TRY(const Compiler compiler, Compiler::open(job.recipe, options));
    TENON_CHECK(compiler.each(ProgramKind::train, [](const Program&) {}));
    return {};
  };
  const Status status = prove();
  return status.ok() ? status : locate(status.error(), job.resolved);
}

Result<int> check_recipe(const Places& places, const PlanOptions& options) {
  PluginRegistry registry(places.registry);
  TENON_TRY(const auto planned, read_plan(places, registry, options));
  if (options.rank) TENON_CHECK(check_rank(*planned, *options.rank));
  TENON_CHECK(prove_plan(*planned, options.rank));
  TENON_CHECK(check_memory_limit(*planned, options.memory));
  auto samples = check_data(*planned);
  if (!samples.ok()) return locate(std::move(samples).error(), planned->job.resolved);
  std::vector<std::string> passed = planned->compiled.report.passed;
  passed.emplace_back("evaluation and sampling: the same of their programs");
  for (const ClassMemory& one : planned->classes)
    passed.push_back(fmt::format("memory: {} needs {}", one.name, human_bytes(one.total())));
  passed.push_back(fmt::format("data: {} samples of {} tokens", *samples, planned->job.recipe.context));
  if (options.json) {
    std::cout << Json{{"ok", true},
                      {"passed", passed},
                      {"peak_bytes", largest_of(planned->classes).total()},
                      {"cpu_seconds", planned->seconds},
                      {"process_bytes", peak_bytes()},
                      {"program_sha256", planned->hash}}
                     .dump()
              << '\n';
    return 0;
  }
  for (const std::string& line : passed) std::cout << "ok    " << line << '\n';
  std::cout << fmt::format("0 errors; compiled and proved in {:.2f} s of one core, {}\n", planned->seconds,
                           human_bytes(peak_bytes()));
  return 0;
}

Result<int> print_plan(const Places& places, const PlanOptions& options) {
  TENON_CHECK(check_questions(options));
  PluginRegistry registry(places.registry);
  TENON_TRY(const auto planned, read_plan(places, registry, options));
  const auto stage = graph_stage(options.stage);
  if (stage) {  // of a recipe that is refused, too
    const Graphs graphs = graphs_of(planned->job.recipe, planned->options);
    std::cout << text(graphs, *stage, planned->options.mesh, source_of(planned->job)) << std::flush;
  }
  TENON_CHECK(compile_plan(*planned));
  const Compiled& compiled = planned->compiled;
  const int64_t rank = options.rank.value_or(0);
  TENON_CHECK(check_rank(*planned, rank));
  const Program& program = compiled.of(rank);
  TENON_TRY(const auto asked, asked_of(options.why, program));
  const Simulation simulation = simulate(compiled.programs, machine_of(options.machine));
  TENON_CHECK(draw(options, *planned, simulation));
  if (!asked.empty())
    std::cout << answers(program, *planned, asked, options);
  else if (options.json)
    std::cout << printable(plan_json(program, *planned, simulation, options)) << '\n';
  else if (!stage)
    std::cout << plan_text(program, *planned, simulation, options);
  std::cout << std::flush;
  TENON_CHECK(check_memory_limit(*planned, options.memory));
  return 0;
}

}  // namespace tenon::cli
