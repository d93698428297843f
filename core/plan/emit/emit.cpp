#include "plan/emit/emit.h"

#include <algorithm>

#include "graph/infer.h"
#include "plan/emit/emitter.h"

namespace tenon {
namespace {

// The program of one class, and its end of all that goes between classes.
class ProgramEmitter {
 public:
  ProgramEmitter(const EmitContext& context, const std::vector<Visit>& visits, int index)
      : context_(context), pipeline_(context.options.pipeline), visits_(visits), mine_(context, index) {}

  Result<Program> run() {
    TENON_CHECK(mine_.open());
    TENON_CHECK(emit_rows());
    TENON_CHECK(emit_outputs());
    if (context_.kind == ProgramKind::train) TENON_CHECK(emit_update());
    Program& program = builder().program();
    program.pipeline_axis = pipeline_;
    program.class_index = mine_.index();
    return std::move(program);
  }

 private:
  ProgramBuilder& builder() { return mine_.builder(); }
  bool several() const { return context_.rows.ranks > 1; }

  // -- rows

  Status emit_rows() {
    const std::vector<Row>& rows = context_.rows.of_rank[static_cast<size_t>(mine_.index())];
    for (const Visit& visit : visits_) {
      if (visit.value == kNone) {
        const auto send_on = [&](ValueId id) { return send(id, builder().microbatch()); };
        TENON_CHECK(mine_.run(std::span(rows).subspan(visit.first, visit.end - visit.first), send_on));
      } else {
        const auto because = builder().because(why_of_stage(visit.value, mine_.index()));
        TENON_TRY(const Operand here, mine_.expect(visit.value, visit.microbatch));
        receive(visit.from, here, phase_of(visit.value), visit.microbatch);
      }
    }
    return {};
  }

  // A value that other stages read, to each class that does not have it yet.
  Status send(ValueId id, int microbatch) {
    for (int reader : readers_of(context_.stages, context_.rows, id, mine_.index())) {
      const auto because = builder().because(why_of_stage(id, reader));
      builder().send(pipeline_, reader, mine_.at(id, microbatch), phase_of(id));
    }
    return {};
  }

  void receive(int from, const Operand& to, Phase phase, int microbatch) {
    builder().enter(0, microbatch);
    builder().recv(pipeline_, from, to, phase);
  }

  // `reader`: the class that gets it.
  Why why_of_stage(ValueId id, int reader) const {
    const std::vector<int>& stages = context_.stages.readers[id];
    const auto first = std::ranges::find_if(
        stages, [&](int stage) { return context_.rows.owner[static_cast<size_t>(stage)] == reader; });
    return {Why::Because::stage, false, context_.joint.graph.value(id).producer, id, *first};
  }
  Phase phase_of(ValueId id) const {
    return context_.joint.graph.op(context_.joint.graph.value(id).producer).phase;
  }

  // -- outputs

  // Loss, count or logits: reduced on the class that made them, then known to all.
  Status emit_outputs() {
    for (const Op& op : context_.joint.graph.ops()) {
      if (op.phase != Phase::step || reshard_of(*op.def) == TransferKind::none) continue;
      if (home(op.in[0]) == mine_.index()) TENON_CHECK(mine_.emit_step_op(op));
    }
    for (const auto& [name, id] : context_.joint.outputs) {
      if (name != "norm" && name != "scale") TENON_CHECK(emit_output(name, id));
    }
    return {};
  }

  Status emit_output(const std::string& name, ValueId id) {
    const auto because = builder().because({Why::Because::output, false, kNone, id});
    const int root = home(id);
    Operand& here = builder().program().outputs[name];
    if (root != mine_.index()) {
      const Value& value = context_.joint.graph.value(id);
      TENON_TRY(here, mine_.local(id));
      here = builder().scratch(value.name, value.dtype, here.dims);
    } else if (const auto operand = mine_.folded(id)) {
      here = *operand;
    } else {
      return Error{"P030", "output '" + name + "' is nowhere", name_of(context_.kind), "", TENON_E_INTERNAL};
    }
    if (several()) builder().broadcast(pipeline_, root, root == mine_.index(), here);
    return {};
  }

  // The class whose op, or whose op's input, made a value.
  int home(ValueId id) const {
    const Op& op = context_.joint.graph.op(context_.joint.graph.value(id).producer);
    return context_.rows.owner[static_cast<size_t>(op.stage)];
  }

  // -- update

  Status emit_update() {
    TENON_CHECK(mine_.gradients().settle());
    const std::vector<Tied> tied = tied_params();
    for (const Tied& one : tied) TENON_CHECK(join_gradients(one));
    const Operand sum = mine_.gradients().norms();
    const auto because = builder().because({Why::Because::norm, false, kNone, kNone});
    if (several()) builder().collective(TransferKind::all_reduce, {pipeline_}, Phase::step, sum, sum);
    const Operand scale = clip(sum);
    const Statistics stats = mine_.params().statistics(mine_.gradients(), scale);
    for (size_t b = 0; b < mine_.buckets().size(); ++b) {
      if (!mine_.buckets()[b].owner) continue;
      const auto found = stats.find(b);
      mine_.params().update(b, mine_.gradients().gradient(b), scale,
                            found == stats.end() ? nullptr : &found->second);
    }
    for (const Tied& one : tied) hand_out_param(one);
    return {};
  }

  // A parameter that this class holds and others too: the first owns it.
  struct Tied {
    ValueId param;
    size_t bucket;             // here
    std::vector<int> holders;  // in order
  };

  std::vector<Tied> tied_params() const {
    std::vector<Tied> out;
    for (size_t b = 0; b < mine_.buckets().size(); ++b) {
      const Bucket& bucket = mine_.buckets()[b];
      if (!bucket.tied) continue;
      const ValueId param = context_.joint.leaves[bucket.leaves.front()].param;
      const auto index = static_cast<size_t>(std::ranges::find(context_.joint.params, param) -
                                             context_.joint.params.begin());
      out.push_back({param, b, context_.params.holders[index]});
    }
    std::ranges::sort(out, {}, [&](const Tied& tied) {
      return std::ranges::find(context_.joint.params, tied.param) - context_.joint.params.begin();
    });
    return out;
  }

  // Each copy's gradient is added to the owner's, in order: before they are reduced, but for exact mode,
  // whose tree of sums over shards is whole before anything else is added.
  Status join_gradients(const Tied& tied) {
    const Why why{Why::Because::tied, false, kNone, tied.param};
    Gradients& gradients = mine_.gradients();
    if (context_.options.exact) TENON_CHECK(gradients.reduce(tied.bucket));
    const Operand mine = gradients.gradient(tied.bucket);
    if (tied.holders[0] != mine_.index()) {
      const auto because = builder().because(why);
      builder().send(pipeline_, tied.holders[0], mine, Phase::step);
      return {};
    }
    for (size_t i = 1; i < tied.holders.size(); ++i) {
      const auto because = builder().because(why);
      const Operand other = builder().scratch(mine.name + ".other", mine.dtype, mine.dims);
      builder().program().buffers[other.buffer].gaps = true;
      receive(tied.holders[i], other, Phase::step, 0);
      gradients.set_gradient(tied.bucket, builder().add(gradients.gradient(tied.bucket), other, Phase::step));
    }
    return context_.options.exact ? Status() : gradients.reduce(tied.bucket);
  }

  void hand_out_param(const Tied& tied) {
    const auto because = builder().because({Why::Because::updated, false, kNone, tied.param});
    const Operand& here = mine_.params().storage(tied.bucket);
    if (tied.holders[0] != mine_.index()) return receive(tied.holders[0], here, Phase::step, 0);
    for (size_t i = 1; i < tied.holders.size(); ++i)
      builder().send(pipeline_, tied.holders[i], here, Phase::step);
  }

  // The graph's op that makes the scale, of one sum instead of each gradient's own.
  Operand clip(const Operand& sum) {
    Program& program = builder().program();
    const Graph& graph = context_.joint.graph;
    const Op& op = graph.op(graph.value(context_.joint.outputs.at("scale")).producer);
    Instr instr = builder().begin(op.def->kind, op.phase);
    instr.attrs = op.attrs;
    instr.in = {sum, program.outputs.at("count")};
    for (ValueId id : op.out) {
      const Value& value = graph.value(id);
      instr.out.push_back(builder().scratch(value.name, value.dtype, {}));
      program.outputs[value.name] = instr.out.back();
    }
    builder().push(std::move(instr));
    return program.outputs.at("scale");
  }

  const EmitContext& context_;
  const AxisId pipeline_;
  const std::vector<Visit>& visits_;
  Emitter mine_;
};

std::vector<double> work_of(const Graph& graph) {
  std::vector<double> out;
  for (const Op& op : graph.ops()) out.push_back(flops_of(graph, op));
  return out;
}

}  // namespace

Emission::Emission(const JointGraph& joint, const Mesh& mesh, ProgramKind kind, const Rows& rows,
                   const ParamPlan& params, const EmitOptions& options, const OptimizerPlan& optimizer)
    : stages_(plan_stages(joint, mesh)),
      context_{joint,
               mesh,
               kind,
               options,
               optimizer,
               params,
               stages_,
               rows,
               options.exact && !options.tree_order,
               mesh.world() / (options.pipeline == kNone ? 1 : mesh.axes[options.pipeline].size),
               work_of(joint.graph),
               locals_of(joint.graph, mesh)},
      visits_(plan_visits(joint.graph, stages_, rows)) {}

Result<Program> Emission::program_of(int klass) const {
  return ProgramEmitter(context_, visits_[static_cast<size_t>(klass)], klass).run();
}

}  // namespace tenon
