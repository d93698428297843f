#include "run/programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "graph/ops.h"
#include "run/declarations.h"
#include "run/device.h"

namespace tenon {
namespace {

Result<std::vector<OptimizerSlots>> optimizer_slots(const OptimizerUse& use, Dtype precision) {
  std::vector<OptimizerSlots> out;
  for (const OptimizerUse::Group& given : use.groups) {
    TENON_TRY(const auto state, open_optimizer(use, given));
    TENON_TRY(const OptimizerDeclaration info, describe(use, state.get()));
    OptimizerSlots& group = out.emplace_back();
    group.elements = info.granule == TENON_GRANULE_ELEMENT;
    group.stats = info.num_stats;
    for (const SlotDeclaration& slot : info.slots)
      group.slots.push_back({slot.name, slot.dtype_for(precision)});
  }
  return out;
}

}  // namespace

Result<CompileOptions> compile_options(const Recipe& recipe, const PluginSet& plugins, const Mesh& mesh) {
  CompileOptions out;
  out.mesh = mesh;
  for (const auto& pass : plugins.passes) {
    const size_t i = out.passes.size();
    out.passes.push_back({pass.id,
                          pass.table,
                          {pass.options.data(), pass.options.data() + pass.options.size()},
                          "/strategies/" + std::to_string(i),
                          pass.host});
  }
  if (const auto forward = build_forward(recipe, recipe.batch, recipe.context, true); forward.ok())
    out.mesh = mesh_for(out.passes, forward->graph, mesh);
  const auto& schedule = plugins.schedule;
  if (schedule.table != nullptr) {
    out.schedule = {schedule.id,
                    schedule.table,
                    {schedule.options.data(), schedule.options.data() + schedule.options.size()},
                    schedule.host};
  }
  out.optimizer = plugins.optimizer.id;
  TENON_TRY(out.slots, optimizer_slots(plugins.optimizer, recipe.precision));
  out.tree_order = (plugins.comm.table->flags & TENON_COMM_TREE_ORDER) != 0;
  out.describe = [&kernels = plugins.kernels](const tenon_kernel_desc& desc) {
    return describe(kernels, desc);
  };
  for (const auto& [kind, index] : plugins.kernels.overrides) out.overridden.insert(kind);
  return out;
}

void RankMemory::add(const Program& program) {
  for (size_t i = 0; i < kNumSpaces; ++i) spaces[i] = std::max(spaces[i], program.space_bytes[i]);
  kernels_private = std::max(kernels_private, program.kernel_private_bytes);
}

uint64_t RankMemory::total() const { return std::accumulate(spaces.begin(), spaces.end(), kernels_private); }

RankMemory planned_memory(const Programs& programs, int64_t rank) {
  RankMemory out;
  for (const Compiled* compiled : programs.all()) out.add(compiled->of(rank));
  return out;
}

Result<std::shared_ptr<const Programs>> compile_programs(const Recipe& recipe, const PluginSet& plugins,
                                                         int64_t world, bool training,
                                                         std::optional<int64_t> rank) {
  TENON_TRY(const Mesh mesh, resolve_mesh(recipe.mesh, world));
  TENON_TRY(const CompileOptions options, compile_options(recipe, plugins, mesh));
  TENON_TRY(const Compiler compiler, Compiler::open(recipe, options));
  const auto compiled = [&](ProgramKind kind) {
    return rank ? compiler.of_rank(*rank, kind) : compiler.all(kind);
  };
  const auto out = std::make_shared<Programs>();
  if (training) {
    TENON_TRY(out->train, compiled(ProgramKind::train));
  }
  TENON_TRY(out->eval, compiled(ProgramKind::eval));
  TENON_TRY(out->logits, compiled(ProgramKind::logits));
  for (const Compiled* one : {&out->eval, &out->logits})
    TENON_CHECK(check_alike(one->classes, out->layout().classes));
  return std::shared_ptr<const Programs>(out);
}

namespace {

ValueId operand_named(const Op& op, const char* name) {
  const auto found = std::ranges::find(op.def->in, name, &OperandDef::name);
  const auto at = static_cast<size_t>(found - op.def->in.begin());
  return at < op.in.size() ? op.in[at] : kNone;
}

// Of those that tokens are looked up in; NULL: none is.
const Value* smallest_table(const JointGraph& model) {
  const Value* smallest = nullptr;
  for (const Op& op : model.graph.ops()) {
    const ValueId ids = operand_named(op, "ids"), table = operand_named(op, "w");
    if (ids == kNone || table == kNone || ids != model.inputs.at("tokens")) continue;
    const Value& param = model.graph.value(table);
    if (param.role != Role::param) continue;
    if (smallest == nullptr || param.dims[0].size < smallest->dims[0].size) smallest = &param;
  }
  return smallest;
}

}  // namespace

TokenLimits token_limits(const Compiled& compiled) {
  const JointGraph& model = *compiled.reference->joint;
  TokenLimits out;
  if (const Value* const table = smallest_table(model)) out.tokens = table->dims[0].size;
  for (const Op& op : model.graph.ops()) {
    const ValueId targets = operand_named(op, "targets"), logits = operand_named(op, "logits");
    if (targets == kNone || logits == kNone || targets != model.inputs.at("targets")) continue;
    out.targets = std::min(out.targets, model.graph.value(logits).dims.back().size);
  }
  return out;
}

Status check_vocabulary(const Compiled& compiled, int64_t limit) {
  const Value* const table = smallest_table(*compiled.reference->joint);
  if (table == nullptr || limit <= table->dims[0].size) return {};
  return Error{"D003",
               fmt::format("the data has tokens up to {}, but '{}' has {} rows", limit - 1, table->name,
                           table->dims[0].size),
               "/model", fmt::format("set the model's vocabulary to {}", limit), TENON_E_RECIPE};
}

int64_t num_parameters(const Compiled& compiled) {
  const JointGraph& model = *compiled.reference->joint;
  int64_t out = 0;
  for (ValueId id : model.params) out += elements(model.graph.value(id).dims);
  return out;
}

int64_t num_tensors(const Compiled& compiled) { return std::ssize(compiled.reference->joint->params); }

}  // namespace tenon
