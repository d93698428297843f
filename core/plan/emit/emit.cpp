#include "plan/emit/emit.h"

#include <algorithm>
#include <deque>

#include "graph/infer.h"
#include "plan/emit/emitter.h"
#include "plan/rows/times.h"

namespace tenon {
namespace {

// The programs of all classes, and what goes between them.
class JointEmitter {
 public:
  explicit JointEmitter(const EmitContext& context) : context_(context), pipeline_(context.options.pipeline) {
    for (int i = 0; i < context.rows.ranks; ++i) classes_.emplace_back(context_, i);
  }

  Result<std::vector<Program>> run() {
    for (Emitter& one : classes_) TENON_CHECK(one.open());
    TENON_CHECK(emit_rows());
    TENON_CHECK(emit_outputs());
    if (context_.kind == ProgramKind::train) TENON_CHECK(emit_update());
    std::vector<Program> out;
    for (Emitter& one : classes_) {
      Program& program = one.builder().program();
      program.pipeline_axis = pipeline_;
      program.class_index = one.index();
      out.push_back(std::move(program));
    }
    return out;
  }

 private:
  Status emit_rows() {
    std::vector<int> done(classes_.size());  // rows of each class
    for (const RowRef& ref : linear_order(context_.rows)) {
      const auto rank = static_cast<size_t>(ref.rank);
      if (ref.row < done[rank]) continue;  // ran with the one before
      const std::vector<Row>& rows = context_.rows.of_rank[rank];
      const auto first = static_cast<size_t>(ref.row), end = end_of_block(rows, first);
      Emitter& from = classes_[rank];
      const auto send_on = [&](ValueId id) { return send(from, id, from.builder().microbatch()); };
      TENON_CHECK(from.run(std::span(rows).subspan(first, end - first), send_on));
      done[rank] = static_cast<int>(end);
    }
    return {};
  }

  // A value that other stages read, to each class that does not have it yet.
  Status send(Emitter& from, ValueId id, int microbatch) {
    std::vector<int> to;
    for (int stage : context_.stages.readers[id]) {
      const int reader = context_.rows.owner[static_cast<size_t>(stage)];
      if (reader != from.index() && std::ranges::count(to, reader) == 0) to.push_back(reader);
    }
    const OpId maker = context_.joint.graph.value(id).producer;
    const Phase phase = context_.joint.graph.op(maker).phase;
    for (int reader : to) {
      Emitter& other = classes_[static_cast<size_t>(reader)];
      TENON_TRY(const Operand there, other.expect(id, microbatch));
      transfer(from, from.at(id, microbatch), other, there, phase, microbatch,
               {Why::Because::stage, false, maker, id});
    }
    return {};
  }

  void transfer(Emitter& from, const Operand& source, Emitter& to, const Operand& target, Phase phase,
                int microbatch, const Why& why) {
    const auto here = from.builder().because(why), there = to.builder().because(why);
    to.builder().enter(0, microbatch);
    from.builder().send(pipeline_, to.index(), source, phase);
    to.builder().recv(pipeline_, from.index(), target, phase);
  }

  // Loss, count or logits: reduced on the class that made them, then known to all.
  Status emit_outputs() {
    const Graph& graph = context_.joint.graph;
    for (const Op& op : graph.ops()) {
      if (op.phase != Phase::step || reshard_of(*op.def) == TransferKind::none) continue;
      TENON_CHECK(home(op.in[0]).emit_step_op(op));
    }
    for (const auto& [name, id] : context_.joint.outputs) {
      if (name == "norm" || name == "scale") continue;
      Emitter& root = home(id);
      const auto operand = root.folded(id);
      if (!operand) {
        return Error{"P030", "output '" + name + "' is nowhere", name_of(context_.kind), "",
                     TENON_E_INTERNAL};
      }
      for (Emitter& one : classes_) {
        const bool mine = &one == &root;
        const auto because = one.builder().because({Why::Because::output, false, kNone, id});
        Operand here = *operand;
        if (!mine) here = one.builder().scratch(operand->name, operand->dtype, operand->dims);
        if (classes_.size() > 1) one.builder().broadcast(pipeline_, root.index(), mine, here);
        one.builder().program().outputs[name] = here;
      }
    }
    return {};
  }

  // The class whose op, or whose op's input, made a value.
  Emitter& home(ValueId id) {
    const Op& op = context_.joint.graph.op(context_.joint.graph.value(id).producer);
    return classes_[static_cast<size_t>(context_.rows.owner[static_cast<size_t>(op.stage)])];
  }

  Status emit_update() {
    for (Emitter& one : classes_) TENON_CHECK(one.gradients().settle());
    const std::vector<Tied> tied = tied_params();
    for (const Tied& one : tied) TENON_CHECK(join_gradients(one));
    std::vector<Operand> sums;
    for (Emitter& one : classes_) sums.push_back(one.gradients().norms());
    for (Emitter& one : classes_) {
      const Operand& sum = sums[static_cast<size_t>(one.index())];
      const auto because = one.builder().because({Why::Because::norm, false, kNone, kNone});
      if (classes_.size() > 1)
        one.builder().collective(TransferKind::all_reduce, {pipeline_}, Phase::step, sum, sum);
      const Operand scale = clip(one, sum);
      for (size_t b = 0; b < one.buckets().size(); ++b) {
        if (one.buckets()[b].owner) one.params().update(b, one.gradients().gradient(b), scale);
      }
    }
    for (const Tied& one : tied) hand_out_param(one);
    return {};
  }

  size_t bucket_of(const Emitter& one, size_t leaf) const {
    const auto& buckets = one.buckets();
    const auto it =
        std::ranges::find_if(buckets, [leaf](const Bucket& b) { return b.tied && b.leaves.front() == leaf; });
    return static_cast<size_t>(it - buckets.begin());
  }

  // A parameter that several classes hold, and its bucket on each of them; the first owns it.
  struct Tied {
    ValueId param;
    std::vector<std::pair<Emitter*, size_t>> at;
  };

  std::vector<Tied> tied_params() {
    std::vector<Tied> out;
    for (size_t param = 0; param < context_.params.holders.size(); ++param) {
      const auto& holders = context_.params.holders[param];
      if (holders.size() < 2) continue;
      const auto leaf = static_cast<size_t>(
          std::ranges::find(context_.joint.leaves, context_.joint.params[param], &LeafGrad::param) -
          context_.joint.leaves.begin());
      Tied& tied = out.emplace_back(Tied{context_.joint.params[param], {}});
      for (int holder : holders) {
        Emitter& one = classes_[static_cast<size_t>(holder)];
        tied.at.emplace_back(&one, bucket_of(one, leaf));
      }
    }
    return out;
  }

  // Each copy's gradient is added to the owner's, in order: before they are reduced, but for exact mode,
  // whose tree of sums over shards is whole before anything else is added.
  Status join_gradients(const Tied& tied) {
    const auto [owner, home] = tied.at[0];
    if (context_.options.exact) {
      for (const auto& [one, bucket] : tied.at) TENON_CHECK(one->gradients().reduce(bucket));
    }
    for (size_t i = 1; i < tied.at.size(); ++i) {
      const auto [copy, bucket] = tied.at[i];
      const Operand mine = owner->gradients().gradient(home);
      const Operand other = owner->builder().scratch(mine.name + ".other", mine.dtype, mine.dims);
      owner->builder().program().buffers[other.buffer].gaps = true;
      const Why why{Why::Because::tied, false, kNone, tied.param};
      transfer(*copy, copy->gradients().gradient(bucket), *owner, other, Phase::step, 0, why);
      const auto because = owner->builder().because(why);
      owner->gradients().set_gradient(home, owner->builder().add(mine, other, Phase::step));
    }
    return context_.options.exact ? Status() : owner->gradients().reduce(home);
  }

  void hand_out_param(const Tied& tied) {
    const auto [owner, home] = tied.at[0];
    for (size_t i = 1; i < tied.at.size(); ++i) {
      const auto [copy, bucket] = tied.at[i];
      transfer(*owner, owner->params().storage(home), *copy, copy->params().storage(bucket), Phase::step, 0,
               {Why::Because::tied, false, kNone, tied.param});
    }
  }

  // The graph's op that makes the scale, of one sum instead of each gradient's own.
  Operand clip(Emitter& one, const Operand& sum) {
    Program& program = one.builder().program();
    const Graph& graph = context_.joint.graph;
    const Op& op = graph.op(graph.value(context_.joint.outputs.at("scale")).producer);
    Instr instr = one.builder().begin(op.def->kind, op.phase);
    instr.attrs = op.attrs;
    instr.in = {sum, program.outputs.at("count")};
    for (ValueId id : op.out) {
      const Value& value = graph.value(id);
      instr.out.push_back(one.builder().scratch(value.name, value.dtype, {}));
      program.outputs[value.name] = instr.out.back();
    }
    one.builder().push(std::move(instr));
    return program.outputs.at("scale");
  }

  const EmitContext& context_;
  const AxisId pipeline_;
  std::deque<Emitter> classes_;  // which stay where they are
};

}  // namespace

Result<std::vector<Program>> emit(const JointGraph& joint, const Mesh& mesh, ProgramKind kind,
                                  const Rows& rows, const ParamPlan& params, const EmitOptions& options,
                                  const OptimizerPlan& optimizer) {
  const StagePlan stages = plan_stages(joint);
  const int64_t pipeline = options.pipeline == kNone ? 1 : mesh.axes[options.pipeline].size;
  std::vector<double> flops;
  for (const Op& op : joint.graph.ops()) flops.push_back(flops_of(joint.graph, op));
  const EmitContext context{joint,
                            mesh,
                            kind,
                            options,
                            optimizer,
                            params,
                            stages,
                            rows,
                            options.exact && !options.tree_order,
                            mesh.world() / pipeline,
                            std::move(flops)};
  return JointEmitter(context).run();
}

}  // namespace tenon
