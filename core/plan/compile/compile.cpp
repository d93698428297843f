#include "plan/compile/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "graph/ops.h"
#include "graph/propagate.h"
#include "plan/emit/emit.h"
#include "plan/emit/stages.h"
#include "plan/finish/fuse.h"
#include "plan/finish/memory.h"
#include "plan/finish/receives.h"
#include "plan/finish/waits.h"
#include "plan/program/bucket_kernels.h"

namespace tenon {
namespace {

struct Split {  // of a step's samples
  int64_t microbatches = 1;
  int64_t microbatch = 0;  // samples of one microbatch over the whole mesh
};

// What the strategies say about the model before the sizes of microbatches are known.
struct Probe {
  int64_t data_ranks = 1;             // over which the samples are cut
  int64_t seq_ranks = 1;              // over which each sequence is cut
  std::vector<int64_t> token_groups;  // of consecutive tokens that an op looks at together
  int stages = 1;
  AxisId pipeline = kNone;
  size_t ops = 0;  // of the forward pass
};

Annotate annotate_with(const CompileOptions& options) {
  return [&options](Graph& graph, const Mesh& mesh) { return run_passes(options.passes, graph, mesh); };
}

Result<Probe> probe(const Recipe& recipe, const Mesh& mesh, const Annotate& annotate) {
  TENON_TRY(ForwardGraph forward, build_forward(recipe, recipe.batch, recipe.context, true));
  TENON_CHECK(annotate(forward.graph, mesh));
  Probe out;
  for (const Pin& pin : forward.graph.value(forward.tokens).pins) {
    if (pin.dim == size_t{0}) out.data_ranks *= mesh.axes[pin.axis].size;
    if (pin.dim == size_t{1}) out.seq_ranks *= mesh.axes[pin.axis].size;
  }
  for (const Op& op : forward.graph.ops()) {
    if (*op.def->token_group != '\0') out.token_groups.push_back(attr_int(op.attrs, op.def->token_group));
  }
  out.ops = forward.graph.ops().size();
  out.stages = forward.graph.stages();
  out.pipeline = forward.graph.pipeline;
  return out;
}

// Each rank holds a part from the front of the sequence and one from the back: see tokens_of().
Status check_context(const Recipe& recipe, int64_t ranks) {
  const int64_t parts = 2 * ranks;
  if (ranks == 1 || recipe.context % parts == 0) return {};
  const int64_t below = recipe.context / parts * parts;
  return Error{
      "P010",
      fmt::format("context {} is not divisible by {} (two parts for each of {} ranks that share a "
                  "sequence)",
                  recipe.context, parts, ranks),
      "/context",
      below > 0 ? fmt::format("nearest: {} or {}", below, below + parts) : fmt::format("nearest: {}", parts),
      TENON_E_RECIPE};
}

// A group whose tokens are in two parts would be another group than on one rank.
Status check_routing(const Recipe& recipe, const Probe& found) {
  const int64_t part = recipe.context / (2 * found.seq_ranks);
  for (int64_t group : found.token_groups) {
    if (found.seq_ranks == 1 || part % group == 0) continue;
    return Error{
        "P010",
        fmt::format("the {} tokens of a part of a sequence, of which each of {} ranks has two, are not "
                    "whole routing groups of {}",
                    part, found.seq_ranks, group),
        "/context",
        fmt::format("use routing groups of {} tokens or a divisor of that, or a longer context", part),
        TENON_E_RECIPE};
  }
  return {};
}

Error not_divisible(int64_t batch, int64_t parts, const std::string& what) {
  const int64_t below = batch / parts * parts;
  return Error{
      "P010", fmt::format("batch {} is not divisible by {} ({})", batch, parts, what), "/batch",
      below > 0 ? fmt::format("nearest: {} or {}", below, below + parts) : fmt::format("nearest: {}", parts),
      TENON_E_RECIPE};
}

Result<Split> split_batch(const Recipe& recipe, int64_t ranks) {
  if (!recipe.exact) {
    const int64_t parts = recipe.microbatches * ranks;
    if (recipe.batch % parts != 0) {
      return not_divisible(
          recipe.batch, parts,
          fmt::format("{} microbatches x {} data-parallel ranks", recipe.microbatches, ranks));
    }
    return Split{recipe.microbatches, recipe.batch / recipe.microbatches};
  }
  if (recipe.shards % ranks != 0) {
    return Error{"P011",
                 fmt::format("{} data-parallel ranks do not divide the {} logical shards of exact mode",
                             ranks, recipe.shards),
                 "/numerics/shards", "use 1, 2, 4, ... ranks up to the number of shards", TENON_E_RECIPE};
  }
  if (recipe.batch % recipe.shards != 0)
    return not_divisible(recipe.batch, recipe.shards, "logical shards of exact mode");
  return Split{recipe.shards / ranks, recipe.batch / recipe.shards * ranks};
}

// A program holds each op of each microbatch.
Status check_work(int64_t microbatches, size_t ops, int64_t most) {
  if (microbatches <= most / static_cast<int64_t>(std::max<size_t>(ops, 1))) return {};
  return Error{
      "P037",
      fmt::format("{} microbatches of {} ops each: a program has at most {}", microbatches, ops, most),
      "/microbatches", "fewer microbatches (in exact mode: fewer logical shards)", TENON_E_RECIPE};
}

OptimizerPlan plan_optimizer(const Recipe& recipe, const JointGraph& joint, const CompileOptions& options) {
  OptimizerPlan plan{options.optimizer, {}, {}};
  for (const OptimizerSlots& group : options.slots) plan.groups.push_back({group.slots, group.stats});
  for (ValueId id : joint.params) plan.group_of_param.push_back(group_of(recipe, joint.graph.value(id).name));
  return plan;
}

// The order of work of training.
Result<Rows> plan_rows(const Recipe& recipe, const CompileOptions& options, const Probe& probe,
                       int microbatches) {
  if (probe.pipeline == kNone) {
    if (options.schedule.table == nullptr && recipe.schedule_rows.empty()) return plain_rows(microbatches);
    return Error{"P031", "a schedule is named, but no strategy makes stages", "/schedule",
                 "add parallel/pipeline to the strategies, or remove the schedule", TENON_E_RECIPE};
  }
  const auto ranks = static_cast<int>(options.mesh.axes[probe.pipeline].size);
  if (ranks == 1 && probe.stages == 1) return plain_rows(microbatches);
  if (!recipe.schedule_rows.empty()) {
    TENON_TRY(const Json document, parse_json(recipe.schedule_rows, "/schedule/rows"));
    TENON_TRY(Rows rows, parse_rows(document, microbatches, "/schedule/rows"));
    if (rows.ranks == ranks && rows.stages == probe.stages) return rows;
    return Error{
        "P032",
        fmt::format("the rows are for {} ranks and {} stages, the pipeline has {} and {}", rows.ranks,
                    rows.stages, ranks, probe.stages),
        "/schedule/rows",
        fmt::format("give {} lists, one for each rank, with the stages 0 to {}", ranks, probe.stages - 1),
        TENON_E_RECIPE};
  }
  if (options.schedule.table == nullptr) {
    return Error{"P033", "the model has stages, but no schedule says in which order they work", "/strategies",
                 "name one, for instance schedule/1f1b", TENON_E_RECIPE};
  }
  const tenon_schedule_config config{.struct_size = sizeof config,
                                     .num_options = static_cast<uint32_t>(options.schedule.options.size()),
                                     .host = options.schedule.host,
                                     .options = options.schedule.options.data(),
                                     .ranks = ranks,
                                     .stages = probe.stages,
                                     .microbatches = microbatches,
                                     .reserved = 0};
  auto rows = rows_of(*options.schedule.table, config, options.schedule.id);
  if (rows.ok()) return rows;
  Error error = std::move(rows).error();  // the numbers are the recipe's, so the place is too
  error.cause = options.schedule.id + ": " + error.cause;
  error.place = "/schedule";
  return error;
}

Status check_storage(const Recipe& recipe, const CompileOptions& options, const Graph& graph) {
  for (ValueId id : graph.with_role(Role::param)) {
    if (graph.value(id).storage.level == 0 || !recipe.exact || options.tree_order) continue;
    return Error{"P034",
                 graph.value(id).storage.by +
                     " cuts gradients, and the comm plugin does not sum in the fixed "
                     "tree that exact mode needs for that",
                 "/comm", "use a comm plugin that does (comm/local, comm/ucx), or numerics fast",
                 TENON_E_RECIPE};
  }
  return {};
}

Status check_stats(const Recipe& recipe, const CompileOptions& options) {
  const bool any =
      std::ranges::any_of(options.slots, [](const OptimizerSlots& one) { return one.stats > 0; });
  if (!recipe.exact || !any) return {};
  return Error{
      "P021",
      options.optimizer + " reads sums over whole parameters, whose order depends on how these are cut",
      "/numerics/mode", "use numerics fast, or another optimizer", TENON_E_RECIPE};
}

// The fixed tree adds logical shards of the batch. A parameter that is cut over an axis of the batch gets its
// gradient by exchange instead, in an order that depends on the number of ranks.
Status check_exact(const Recipe& recipe, const JointGraph& train, const Mesh& mesh) {
  if (!recipe.exact) return {};
  const Graph& graph = train.graph;
  for (ValueId id : train.params) {
    for (AxisId axis : graph.value(train.inputs.at("tokens")).placement.dims[0]) {
      if (!graph.value(id).placement.sharded_dim(axis)) continue;
      return Error{
          "P036",
          fmt::format("'{}' is cut over {}, over which the batch is cut too: its bits would depend on "
                      "the number of ranks",
                      graph.value(id).name, mesh.axes[axis].name),
          "/numerics/mode", "use numerics fast, or cut it over another axis", TENON_E_RECIPE};
    }
  }
  return {};
}

// Kinds of which a model may have none, so that who runs them does not depend on how it is cut. What ops are
// turned into where they are cut is none of them.
bool is_of_models(const OpDef& def) { return def.use == OpUse::graph && !def.of_plans; }

// An op of a kind that is fused is looked for by its parts.
Status check_overridden(const std::set<std::string>& overridden, const Graph& graph) {
  std::set<std::string_view> kinds;
  for (const Op& op : graph.ops()) {
    kinds.insert({op.def->kind, op.def->computes});
    for (const PartDef& part : op.def->made_of) kinds.insert(part.kind);
  }
  const auto occurs = [&](const OpDef& def) { return !is_of_models(def) || kinds.contains(def.kind); };
  for (const std::string& kind : overridden) {
    const OpDef& def = *find_kind(kind);
    std::string missing = occurs(def) ? "" : kind;
    for (const PartDef& part : def.made_of)
      if (missing.empty() && !occurs(*find_kind(part.kind))) missing = part.kind;
    if (missing.empty()) continue;
    return Error{"R005", "the model has no op of kind '" + missing + "'", "/kernels/overrides/" + kind,
                 "remove it", TENON_E_RECIPE};
  }
  return {};
}

LayoutOptions layout_options(const Recipe& recipe, const CompileOptions& options) {
  const bool elements = std::ranges::all_of(options.slots, &OptimizerSlots::elements);
  // A comm plugin that does not sum in the fixed tree exchanges parts that are added here.
  const bool exchanged = recipe.exact && !options.tree_order;
  return {recipe.exact, options.bucket_bytes, elements ? kElementGranule : 0, exchanged};
}

// Where the recipe does not forbid it, and as far as the kernels plugin says that it can. Error: what it says
// of a kernel, but that it has none.
Status fuse_kernels(Program& program, const Recipe& recipe, const CompileOptions& options) {
  if (!recipe.fusion || !options.describe) return {};
  Status flaw;
  std::map<std::string, bool> known;
  const Sums sums = recipe.exact ? Sums::apart : Sums::in_kernels;
  fuse(program, {sums, options.overridden}, [&](const Instr& instr) {
    const auto [it, fresh] = known.try_emplace(kernel_key(instr, 0));
    if (fresh) {
      const KernelDesc desc(instr, recipe.exact);
      const auto needs = options.describe(desc.get());
      it->second = needs.ok() && (needs->exact || !recipe.exact);
      if (!needs.ok() && needs.error().kind != TENON_E_UNSUPPORTED && flaw.ok()) flaw = needs.error();
    }
    return it->second;
  });
  return flaw;
}

// What one kernel needs, asked once for equal ones.
class Needs {
 public:
  Needs(bool exact, const CompileOptions& options) : exact_(exact), options_(options) {}

  Result<KernelNeeds> of(const Instr& kernel) {
    const auto [it, fresh] = known_.try_emplace(kernel_key(kernel, 0));
    if (!fresh) return it->second;
    const KernelDesc desc(kernel, exact_);
    TENON_TRY(it->second, options_.describe(desc.get()));
    private_bytes_ += it->second.private_bytes;
    if (exact_ && !it->second.exact) {
      return Error{"P012", it->second.plugin + " gives no exact '" + kernel.kind + "'", "/numerics/mode",
                   "use numerics fast, or other kernels", TENON_E_RECIPE};
    }
    return it->second;
  }
  uint64_t private_bytes() const { return private_bytes_; }
  void list(std::map<std::string, uint64_t>& workspaces) const {
    for (const auto& [key, needs] : known_) workspaces[key] = needs.workspace_bytes;
  }

 private:
  const bool exact_;
  const CompileOptions& options_;
  std::map<std::string, KernelNeeds> known_;
  uint64_t private_bytes_ = 0;
};

// `workspaces` receives what each kernel needs.
Status add_workspaces(Program& program, bool exact, const CompileOptions& options,
                      std::map<std::string, uint64_t>& workspaces) {
  Needs needs(exact, options);
  std::vector<Instr> storage;
  for (Instr& instr : program.instrs) {
    if (instr.lane != 0) continue;
    uint64_t bytes = 0;
    for (const Instr& kernel : kernels_of(program, instr, std::nullopt, storage)) {
      TENON_TRY(const KernelNeeds one, needs.of(kernel));
      bytes = std::max(bytes, one.workspace_bytes);
    }
    if (bytes == 0) continue;
    const std::string name = instr.kind + ".workspace";
    program.buffers.push_back({name, Space::arena, bytes, 0});
    instr.workspace = {
        static_cast<BufferId>(program.buffers.size() - 1), 0, Dtype::u8, {static_cast<int64_t>(bytes)}, name};
  }
  program.kernel_private_bytes = needs.private_bytes();
  needs.list(workspaces);
  return {};
}

}  // namespace

// What the programs of all kinds have in common. Recipe and options are borrowed.
struct Compiler::Draft {
  const Recipe& recipe;
  const CompileOptions& options;
  Annotate annotate;
  Probe found;
  Split split;
  Rows rows;         // of training
  JointGraph train;  // decides which rank holds what
  OptimizerPlan optimizer;
  ParamPlan params;
};

Compiler::Compiler(std::shared_ptr<const Draft> draft) : draft_(std::move(draft)) {}

Result<Compiler> Compiler::open(const Recipe& recipe, const CompileOptions& options) {
  const auto out =
      std::make_shared<Draft>(Draft{recipe, options, annotate_with(options), {}, {}, {}, {}, {}, {}});
  TENON_TRY(out->found, probe(recipe, options.mesh, out->annotate));
  TENON_CHECK(check_context(recipe, out->found.seq_ranks));
  TENON_CHECK(check_routing(recipe, out->found));
  TENON_TRY(out->split, split_batch(recipe, out->found.data_ranks));
  TENON_CHECK(check_work(out->split.microbatches, out->found.ops, options.most_ops));
  TENON_TRY(out->rows, plan_rows(recipe, options, out->found, static_cast<int>(out->split.microbatches)));
  TENON_TRY(out->train,
            build_joint(recipe, options.mesh, ProgramKind::train, out->split.microbatch, out->annotate));
  TENON_CHECK(check_overridden(options.overridden, out->train.graph));
  TENON_CHECK(check_stats(recipe, options));
  TENON_CHECK(check_storage(recipe, options, out->train.graph));
  TENON_CHECK(check_exact(recipe, out->train, options.mesh));
  out->optimizer = plan_optimizer(recipe, out->train, options);
  TENON_TRY(out->params, plan_params(out->train, options.mesh, out->rows.owner, out->optimizer.group_of_param,
                                     layout_options(recipe, options)));
  return Compiler(out);
}

Result<Compiled> Compiler::portion(ProgramKind kind, const Portion& portion) const {
  const Draft& draft = *draft_;
  if (kind == ProgramKind::train) return programs_of(kind, draft.train, draft.rows, portion);
  const bool logits = kind == ProgramKind::logits;
  TENON_TRY(const JointGraph joint, build_joint(draft.recipe, draft.options.mesh, kind,
                                                logits ? 1 : draft.split.microbatch, draft.annotate));
  const int microbatches = logits ? 1 : static_cast<int>(draft.split.microbatches);
  return programs_of(kind, joint, forward_rows(draft.rows.owner, microbatches), portion);
}

Result<Compiled> Compiler::programs_of(ProgramKind kind, const JointGraph& joint, const Rows& rows,
                                       const Portion& portion) const {
  const auto& [recipe, options, annotate, found, split, train_rows, train, optimizer, params] = *draft_;
  TENON_CHECK(check_types(joint.graph, options.mesh));
  const EmitOptions emit_options{recipe.exact, options.tree_order, found.pipeline};
  const Emission emission(joint, options.mesh, kind, rows, params, emit_options, optimizer);
  const auto reference = std::make_shared<Reference>(Reference{joint.unplaced,
                                                               options.mesh,
                                                               optimizer,
                                                               rows.microbatches,
                                                               kind == ProgramKind::train,
                                                               recipe.exact,
                                                               rows.owner,
                                                               {},
                                                               handed_values(joint)});
  if (options.describe) reference->workspaces.emplace();
  Verifier verifier(*reference);
  Compiled out;
  for (int klass = 0; klass < emission.classes(); ++klass) {
    TENON_TRY(Program program, emission.program_of(klass));
    TENON_CHECK(fuse_kernels(program, recipe, options));
    program.window = options.window;
    place_receives(program);
    schedule_waits(program);
    const bool proved = portion.proved(program);
    if (proved) {
      if (options.describe)
        TENON_CHECK(add_workspaces(program, recipe.exact, options, *reference->workspaces));
      plan_memory(program);
      TENON_CHECK(check_form(program));
    }
    TENON_CHECK(verifier.look(program));
    if (!proved) continue;
    TENON_CHECK(verifier.prove(program));
    portion.take(std::move(program));
  }
  out.reference = reference;
  TENON_CHECK(verifier.prove_together());
  out.classes = verifier.classes();
  out.report = verifier.report();
  out.report.passed.insert(out.report.passed.begin(),
                           fmt::format("types: {} values placed", joint.graph.values().size()));
  return out;
}

Result<Compiled> Compiler::kept(ProgramKind kind, const std::function<bool(const Program&)>& wanted) const {
  std::vector<Program> programs;
  TENON_TRY(Compiled out,
            portion(kind, {wanted, [&](Program&& program) { programs.push_back(std::move(program)); }}));
  out.programs = std::move(programs);
  return out;
}

Result<Compiled> Compiler::all(ProgramKind kind) const {
  return kept(kind, [](const Program&) { return true; });
}

Result<Compiled> Compiler::of_rank(int64_t rank, ProgramKind kind) const {
  return kept(kind, [rank](const Program& program) {
    return program.pipeline_axis == kNone ||
           program.mesh.coordinate(rank)[program.pipeline_axis] == program.class_index;
  });
}

Result<Compiled> Compiler::each(ProgramKind kind, const std::function<void(const Program&)>& visit) const {
  return portion(kind, {[](const Program&) { return true; }, [&](Program&& program) { visit(program); }});
}

Result<Compiled> compile(const Recipe& recipe, ProgramKind kind, const CompileOptions& options) {
  TENON_TRY(const Compiler compiler, Compiler::open(recipe, options));
  return compiler.all(kind);
}

int group_of(const Recipe& recipe, const std::string& param) {
  for (size_t i = 0; i < recipe.groups.size(); ++i) {
    for (const std::string& pattern : recipe.groups[i].match) {
      if (matches_pattern(pattern, param)) return static_cast<int>(i) + 1;
    }
  }
  return 0;
}

std::string interface_hash(const Compiled& compiled) {
  std::string all;
  for (const Interface& one : compiled.classes) all += serialize(one);
  return sha256_hex(all + serialize(compiled.reference->handed, compiled.reference->mesh));
}

std::string plan_hash(const Compiled& compiled, const std::vector<std::string>& programs) {
  return sha256_hex(interface_hash(compiled) + fmt::format("{}", fmt::join(programs, "")));
}

const Program& Compiled::of(int64_t rank) const {
  const Program& first = programs.front();
  if (first.pipeline_axis == kNone) return first;
  const int64_t index = first.mesh.coordinate(rank)[first.pipeline_axis];
  const auto found = std::ranges::find(programs, index, &Program::class_index);
  TENON_ASSERT(found != programs.end());
  return *found;
}

Graphs graphs_of(const Recipe& recipe, const CompileOptions& options) {
  const Annotate annotate = annotate_with(options);
  const auto found = probe(recipe, options.mesh, annotate);
  const auto split = found.ok() ? split_batch(recipe, found->data_ranks) : Result<Split>(found.error());
  const int64_t batch = split.ok() ? split->microbatch : recipe.batch;
  Graphs out = build_graphs(recipe, options.mesh, batch, annotate);
  if (!split.ok()) out.placed.reset(), out.joint.reset();  // there is no microbatch that they could be of
  return out;
}

}  // namespace tenon
