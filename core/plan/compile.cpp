#include "plan/compile.h"

#include <fmt/format.h>

#include "base/hash.h"
#include "graph/propagate.h"
#include "plan/memory.h"

namespace tenon {
namespace {

struct Split {  // of a step's samples
  int64_t microbatches = 1;
  int64_t microbatch = 0;  // samples of one microbatch over the whole mesh
};

// Ranks over which the strategies shard the samples.
Result<int64_t> data_parallel_size(const Recipe& recipe, const Mesh& mesh, const Annotate& annotate) {
  TENON_TRY(ForwardGraph probe, build_forward(recipe, recipe.batch, recipe.context, true));
  TENON_CHECK(annotate(probe.graph, mesh));
  const auto& pinned = probe.graph.value(probe.tokens).pinned;
  return pinned ? mesh.size(pinned->dims[0]) : 1;
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

OptimizerPlan plan_optimizer(const Recipe& recipe, const JointGraph& joint, const CompileOptions& options) {
  OptimizerPlan plan{options.optimizer, options.slots, {}};
  for (ValueId id : joint.params) plan.group_of_param.push_back(group_of(recipe, joint.graph.value(id).name));
  return plan;
}

Status add_workspaces(Program& program, bool exact, const CompileOptions& options) {
  std::map<std::string, KernelNeeds> known;
  for (Instr& instr : program.instrs) {
    if (instr.lane != 0 || instr.kind == "update" || !options.describe) continue;
    const std::string key = kernel_key(instr, 0);
    auto it = known.find(key);
    if (it == known.end()) {
      const KernelDesc desc(instr, exact);
      TENON_TRY(const KernelNeeds needs, options.describe(desc.get()));
      if (exact && !needs.exact) {
        return Error{"P012", "the kernels plugin gives no exact '" + instr.kind + "'", "/numerics/mode",
                     "use numerics fast, or other kernels", TENON_E_RECIPE};
      }
      it = known.emplace(key, needs).first;
      program.kernel_private_bytes += needs.private_bytes;
    }
    if (it->second.workspace_bytes == 0) continue;
    const auto bytes = static_cast<int64_t>(it->second.workspace_bytes);
    program.buffers.push_back({instr.kind + ".workspace", Space::arena, it->second.workspace_bytes, 0});
    instr.workspace = {
        static_cast<BufferId>(program.buffers.size() - 1), 0, Dtype::u8, {bytes}, instr.kind + ".workspace"};
  }
  return {};
}

}  // namespace

int group_of(const Recipe& recipe, const std::string& param) {
  for (size_t i = 0; i < recipe.groups.size(); ++i) {
    for (const std::string& pattern : recipe.groups[i].match) {
      if (matches_pattern(pattern, param)) return static_cast<int>(i) + 1;
    }
  }
  return 0;
}

std::string program_hash(const Program& program) { return sha256_hex(serialize(program)); }

Result<Compiled> compile(const Recipe& recipe, ProgramKind kind, const CompileOptions& options) {
  const bool logits = kind == ProgramKind::logits;
  const Annotate annotate = [&options](Graph& graph, const Mesh& mesh) {
    return run_passes(options.passes, TENON_PHASE_A, graph, mesh);
  };
  Split split{1, 1};
  if (!logits) {
    TENON_TRY(const int64_t ranks, data_parallel_size(recipe, options.mesh, annotate));
    TENON_TRY(split, split_batch(recipe, ranks));
  }
  TENON_TRY(const JointGraph joint,
            build_joint(recipe, options.mesh, kind, split.microbatch, logits ? Annotate{} : annotate));
  TENON_CHECK(check_types(joint.graph, options.mesh));
  const EmitOptions emit_options{split.microbatches, recipe.exact, options.tree_order, options.bucket_bytes};
  Compiled out;
  TENON_TRY(out.program,
            emit(joint, options.mesh, kind, emit_options, plan_optimizer(recipe, joint, options)));
  TENON_CHECK(add_workspaces(out.program, recipe.exact, options));
  schedule_waits(out.program);
  plan_memory(out.program);
  TENON_TRY(out.report, verify(out.program));
  out.report.passed.insert(out.report.passed.begin(),
                           fmt::format("types: {} values placed", joint.graph.values().size()));
  return out;
}

}  // namespace tenon
