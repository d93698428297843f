#include "plan/emit.h"

#include <algorithm>

#include "plan/bucket.h"
#include "plan/collectives.h"

namespace tenon {
namespace {

class Emitter {
 public:
  Emitter(const JointGraph& joint, const Mesh& mesh, ProgramKind kind, const EmitOptions& options,
          const OptimizerPlan& optimizer)
      : joint_(joint),
        graph_(joint.graph),
        options_(options),
        optimizer_(optimizer),
        builder_(name_of(kind), mesh, options.microbatches),
        program_(builder_.program()),
        tree_(options.exact && !options.tree_order) {}

  Result<Program> run() {
    at_.assign(graph_.values().size(), Operand{});
    TENON_CHECK(place_params());
    TENON_CHECK(place_inputs());
    find_leaf_chains();
    find_crossings();
    TENON_CHECK(make_buckets());
    for (int64_t mb = 0; mb < options_.microbatches; ++mb) TENON_CHECK(emit_microbatch(static_cast<int>(mb)));
    TENON_CHECK(emit_step());
    for (const auto& [name, id] : joint_.outputs) program_.outputs[name] = at_[id];
    return std::move(program_);
  }

 private:
  // -- memory ---------------------------------------------------------------------------------------
  Result<Operand> local_operand(ValueId id) {
    const Value& value = graph_.value(id);
    TENON_TRY(const Dims local, local_dims(value.dims, value.placement, program_.mesh));
    Operand out{kNone, 0, value.dtype, {}, value.name};
    for (const Dim& dim : local) out.dims.push_back(dim.size);
    return out;
  }

  Result<Operand> allocate(ValueId id, Space space) {
    TENON_TRY(Operand out, local_operand(id));
    out.buffer = builder_.add_buffer(out.name, space, out.bytes());
    return out;
  }

  // -- parameters, inputs ---------------------------------------------------------------------------
  Status place_params() {
    for (size_t i = 0; i < joint_.params.size(); ++i) {
      const ValueId id = joint_.params[i];
      const Value& value = graph_.value(id);
      TENON_TRY(at_[id], allocate(id, Space::param));
      program_.params.push_back({value.name, at_[id], value.dims, value.placement, value.init});
    }
    for (size_t i = 0; i < joint_.params.size() && !joint_.leaves.empty(); ++i) {  // only training has state
      const Value& value = graph_.value(joint_.params[i]);
      for (const StateSlot& slot : optimizer_.groups[optimizer_.group_of_param[i]]) {
        Operand operand = at_[joint_.params[i]];
        operand.name = value.name + "/" + optimizer_.plugin + "." + slot.name;
        operand.dtype = slot.dtype;
        operand.buffer = builder_.add_buffer(operand.name, Space::state, operand.bytes());
        program_.states.push_back({operand.name, operand, value.dims, value.placement, Init{}});
      }
    }
    return {};
  }

  Status place_inputs() {
    const std::string step_wide = "step";
    program_.batch_axes = graph_.value(joint_.inputs.at("tokens")).placement.dims[0];
    for (int64_t mb = 0; mb < options_.microbatches; ++mb) {
      std::map<std::string, Operand> set;
      for (const auto& [name, id] : joint_.inputs) {
        if (mb > 0 && name == step_wide) {
          set[name] = program_.inputs[0][name];
          continue;
        }
        TENON_TRY(set[name], allocate(id, Space::input));
      }
      program_.inputs.push_back(std::move(set));
    }
    return {};
  }

  // -- what leaves a microbatch ---------------------------------------------------------------------
  void find_leaf_chains() {
    leaf_of_.assign(graph_.values().size(), kNone);
    std::map<ValueId, int> contributions;
    for (size_t i = 0; i < joint_.leaves.size(); ++i) {
      for (ValueId id = joint_.leaves[i].grad; id != kNone;) {
        leaf_of_[id] = static_cast<uint32_t>(i);
        ++contributions[joint_.leaves[i].param];
        const Op& op = graph_.op(graph_.value(id).producer);
        const auto k = std::find(op.out.begin(), op.out.end(), id) - op.out.begin();
        id = op.acc.empty() ? kNone : op.acc[static_cast<size_t>(k)];
      }
    }
    for (size_t i = 0; i < joint_.params.size(); ++i)
      program_.params[i].contributions = contributions[joint_.params[i]];
  }

  void find_crossings() {
    crossing_.assign(graph_.values().size(), false);
    const auto cross = [this](ValueId id) {
      const OpId producer = graph_.value(id).producer;
      if (producer != kNone && graph_.op(producer).phase != Phase::step) crossing_[id] = true;
    };
    for (const Op& op : graph_.ops()) {
      if (op.phase == Phase::step) std::for_each(op.in.begin(), op.in.end(), cross);
    }
    for (const auto& [name, id] : joint_.outputs) cross(id);
  }

  // Axes of the all_reduce that directly follows a leaf; empty when there is none or anything else.
  std::vector<AxisId> reduction_of(ValueId grad) const {
    for (const Op& op : graph_.ops()) {
      if (op.phase == Phase::step && collective_of(*op.def) == Collective::all_reduce && op.in[0] == grad)
        return op.axes;
    }
    return {};
  }

  Status make_buckets() {
    std::vector<LeafShape> shapes;
    for (const LeafGrad& leaf : joint_.leaves) {
      TENON_TRY(const Operand operand, local_operand(leaf.grad));
      shapes.push_back({operand.bytes(), reduction_of(leaf.grad), graph_.value(leaf.grad).producer});
    }
    buckets_ = plan_buckets(shapes, program_.mesh, options_.bucket_bytes);
    bucket_of_leaf_.resize(joint_.leaves.size());
    folded_.resize(buckets_.size());
    bucket_now_.resize(buckets_.size());
    bucket_microbatch_.assign(buckets_.size(), -1);
    for (size_t b = 0; b < buckets_.size(); ++b) {
      for (size_t k = 0; k < buckets_[b].leaves.size(); ++k) bucket_of_leaf_[buckets_[b].leaves[k]] = {b, k};
      buckets_of_op_[buckets_[b].last_op].push_back(b);
    }
    return {};
  }

  // -- one microbatch -------------------------------------------------------------------------------
  Status emit_microbatch(int mb) {
    builder_.enter_microbatch(mb);
    count_uses();
    for (const auto& [name, id] : joint_.inputs) at_[id] = program_.inputs[static_cast<size_t>(mb)].at(name);
    for (OpId id = 0; id < graph_.ops().size(); ++id) {
      const Op& op = graph_.op(id);
      if (op.phase == Phase::step) continue;
      TENON_CHECK(emit_op(op));
      for (ValueId out : op.out) {
        if (crossing_[out] && leaf_of_[out] == kNone) at_[out] = fold(scalars_[out], at_[out]);
      }
      if (const auto it = buckets_of_op_.find(id); it != buckets_of_op_.end()) {
        for (size_t b : it->second) complete(b);
      }
    }
    return {};
  }

  void count_uses() {
    uses_.assign(graph_.values().size(), 0);
    for (const Op& op : graph_.ops()) {
      for (ValueId id : op.in) ++uses_[id];
      for (ValueId id : op.acc) ++uses_[id];
    }
    for (const auto& [name, id] : joint_.outputs) ++uses_[id];
  }

  bool last_microbatch() const { return builder_.microbatch() + 1 == options_.microbatches; }

  void complete(size_t b) {
    const Bucket& bucket = buckets_[b];
    Operand now = bucket_now_[b];
    if (options_.exact) now = fold(folded_[b], now);
    if (!last_microbatch()) return;
    if (!bucket.axes.empty()) emit_all_reduce(builder_, now, bucket.axes, Phase::step, tree_);
    for (size_t i = 0; i < bucket.leaves.size(); ++i) {
      Operand& operand = at_[joint_.leaves[bucket.leaves[i]].grad];
      operand.buffer = now.buffer;
      operand.offset = now.offset + bucket.offsets[i];
    }
  }

  // Adds `now` to what earlier microbatches left. Exact: a binary counter, which is the fixed tree.
  Operand fold(std::vector<std::pair<int, Operand>>& stack, Operand now) {
    int level = 0;
    while (!stack.empty() && (!options_.exact || stack.back().first == level)) {
      now = builder_.add(stack.back().second, now, Phase::weight_grad);
      stack.pop_back();
      ++level;
    }
    stack.emplace_back(level, now);
    return now;
  }

  Status emit_op(const Op& op) {
    if (collective_of(*op.def) != Collective::none) return emit_collective(op);
    Instr instr = builder_.begin(op.def->kind, op.phase);
    instr.layer = op.layer;
    instr.attrs = op.attrs;
    for (ValueId id : op.in) instr.in.push_back(at_[id]);
    instr.accumulate = !op.acc.empty();
    for (size_t k = 0; k < op.out.size(); ++k) {
      TENON_CHECK(bind_output(op, k, instr));
      instr.out.push_back(at_[op.out[k]]);
    }
    for (ValueId id : op.in) --uses_[id];
    program_.flops += flops_of(graph_, op) / static_cast<double>(program_.mesh.world());
    builder_.push(std::move(instr));
    return {};
  }

  Status bind_output(const Op& op, size_t k, Instr& instr) {
    const ValueId id = op.out[k];
    if (leaf_of_[id] != kNone) return bind_leaf(id, instr);
    if (k == 0 && op.def->inplace >= 0 && can_take_over(op.in[static_cast<size_t>(op.def->inplace)])) {
      TENON_TRY(Operand operand, local_operand(id));
      const Operand& from = at_[op.in[static_cast<size_t>(op.def->inplace)]];
      if (operand.bytes() == from.bytes()) {
        operand.buffer = from.buffer;
        operand.offset = from.offset;
        at_[id] = operand;
        instr.inplace = op.def->inplace;
        return {};
      }
    }
    TENON_TRY(at_[id], allocate(id, Space::arena));
    return {};
  }

  // The memory of a value may be overwritten by its last reader, if nobody else can see it.
  bool can_take_over(ValueId id) const {
    return uses_[id] == 1 && !crossing_[id] && leaf_of_[id] == kNone && at_[id].buffer != kNone &&
           program_.buffers[at_[id].buffer].space == Space::arena;
  }

  // Gradients of parameters live in their bucket. Fast: one bucket for all microbatches, added into.
  Status bind_leaf(ValueId id, Instr& instr) {
    const auto [b, k] = bucket_of_leaf_[leaf_of_[id]];
    const Bucket& bucket = buckets_[b];
    const int mb = builder_.microbatch();
    if (!options_.exact && mb > 0) {
      instr.accumulate = true;
    } else if (bucket_microbatch_[b] != mb) {
      const int64_t n = static_cast<int64_t>(bucket.bytes) / size_of(graph_.real);
      bucket_now_[b] = builder_.scratch("grads." + std::to_string(b), graph_.real, {n});
      program_.buffers[bucket_now_[b].buffer].gaps = true;
      bucket_microbatch_[b] = mb;
    }
    TENON_TRY(Operand operand, local_operand(id));
    operand.buffer = bucket_now_[b].buffer;
    operand.offset = bucket.offsets[k];
    at_[id] = operand;
    return {};
  }

  // -- collectives ----------------------------------------------------------------------------------
  Status emit_collective(const Op& op) {
    const ValueId in = op.in[0], out = op.out[0];
    const bool all_reduce = collective_of(*op.def) == Collective::all_reduce;
    if (all_reduce &&
        (leaf_of_[in] != kNone || uses_[in] == 1)) {  // a leaf's bucket has been reduced already
      at_[out] = at_[in];
      if (leaf_of_[in] == kNone) emit_all_reduce(builder_, at_[in], op.axes, op.phase, tree_);
      return {};
    }
    TENON_TRY(at_[out], allocate(out, Space::arena));
    if (all_reduce) {
      builder_.copy(at_[in], at_[out], op.phase);
      emit_all_reduce(builder_, at_[out], op.axes, op.phase, tree_);
    } else {
      const auto from = graph_.value(in).placement.sharded_dim(op.axes[0]);
      const auto to = graph_.value(out).placement.sharded_dim(op.axes[0]);
      const Reshard reshard{collective_of(*op.def), op.axes, static_cast<int64_t>(from.value_or(0)),
                            static_cast<int64_t>(to.value_or(0))};
      emit_reshard(builder_, reshard, at_[in], at_[out], op.phase, tree_);
    }
    --uses_[in];
    return {};
  }

  // -- once per step --------------------------------------------------------------------------------
  Status emit_step() {
    std::vector<Instr> updates(optimizer_.groups.size(), builder_.begin("update", Phase::step));
    for (const Op& op : graph_.ops()) {
      if (op.phase != Phase::step) continue;
      if (std::string_view(op.def->kind) == "update")
        TENON_CHECK(add_update(op, updates));
      else
        TENON_CHECK(emit_op(op));
    }
    for (size_t group = 0; group < updates.size(); ++group) {
      Instr& instr = updates[group];
      if (instr.in.empty()) continue;
      instr.group = static_cast<int>(group);
      instr.in.push_back(at_[joint_.outputs.at("scale")]);
      builder_.push(std::move(instr));
    }
    return {};
  }

  Status add_update(const Op& op, std::vector<Instr>& updates) {
    const ValueId param = op.in[1];
    const auto index = static_cast<size_t>(std::find(joint_.params.begin(), joint_.params.end(), param) -
                                           joint_.params.begin());
    Instr& instr = updates[static_cast<size_t>(optimizer_.group_of_param[index])];
    instr.in.push_back(at_[op.in[0]]);
    instr.out.push_back(at_[param]);
    const std::string prefix = graph_.value(param).name + "/";
    for (const TensorInfo& state : program_.states) {
      if (state.name.starts_with(prefix)) instr.out.push_back(state.operand);
    }
    return {};
  }

  const JointGraph& joint_;
  const Graph& graph_;
  const EmitOptions& options_;
  const OptimizerPlan& optimizer_;
  ProgramBuilder builder_;
  Program& program_;               // of the builder
  const bool tree_;                // sums over ranks are added here, in the fixed tree
  std::vector<Operand> at_;        // where each value is now
  std::vector<int> uses_;          // reads left in this microbatch
  std::vector<uint32_t> leaf_of_;  // value -> leaf whose gradient chain it belongs to
  std::vector<bool> crossing_;     // made per microbatch, read by the step
  std::vector<Bucket> buckets_;
  std::vector<std::pair<size_t, size_t>> bucket_of_leaf_;  // bucket, place in it
  std::map<OpId, std::vector<size_t>> buckets_of_op_;
  std::vector<Operand> bucket_now_;
  std::vector<int> bucket_microbatch_;  // for which bucket_now_ was made
  std::vector<std::vector<std::pair<int, Operand>>> folded_;
  std::map<ValueId, std::vector<std::pair<int, Operand>>> scalars_;
};

}  // namespace

Result<Program> emit(const JointGraph& joint, const Mesh& mesh, ProgramKind kind, const EmitOptions& options,
                     const OptimizerPlan& optimizer) {
  return Emitter(joint, mesh, kind, options, optimizer).run();
}

}  // namespace tenon
