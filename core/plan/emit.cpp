#include "plan/emit.h"

#include <algorithm>
#include <numeric>

#include "graph/ops.h"

namespace tenon {
namespace {

// Gradients whose reduction is one collective, laid out one behind the other.
struct Bucket {
  std::vector<size_t> leaves;
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;
  std::vector<AxisId> axes;  // to be reduced over; empty: none
  OpId last_op = 0;          // completes it within a microbatch
};

class Emitter {
 public:
  Emitter(const JointGraph& joint, const Mesh& mesh, ProgramKind kind, const EmitOptions& options,
          const OptimizerPlan& optimizer)
      : joint_(joint), graph_(joint.graph), options_(options), optimizer_(optimizer) {
    program_.name = name_of(kind);
    program_.mesh = mesh;
    program_.microbatches = options.microbatches;
    program_.lanes = {"compute"};
    lane_of_axis_.assign(mesh.axes.size(), kNone);
  }

  Result<Program> run() {
    at_.assign(graph_.values().size(), Operand{});
    TENON_CHECK(place_params());
    TENON_CHECK(place_inputs());
    find_crossings();
    make_buckets();
    for (int64_t mb = 0; mb < options_.microbatches; ++mb) TENON_CHECK(emit_microbatch(static_cast<int>(mb)));
    TENON_CHECK(emit_step());
    for (const auto& [name, id] : joint_.outputs) program_.outputs[name] = at_[id];
    return std::move(program_);
  }

 private:
  // -- memory ---------------------------------------------------------------------------------------
  BufferId add_buffer(const std::string& name, Space space, uint64_t bytes) {
    program_.buffers.push_back({name, space, std::max<uint64_t>(bytes, 1), 0});
    return static_cast<BufferId>(program_.buffers.size() - 1);
  }

  Result<Operand> local_operand(ValueId id) {
    const Value& value = graph_.value(id);
    TENON_TRY(const Dims local, local_dims(value.dims, value.placement, program_.mesh));
    Operand out{kNone, 0, value.dtype, {}, value.name};
    for (const Dim& dim : local) out.dims.push_back(dim.size);
    return out;
  }

  Result<Operand> allocate(ValueId id, Space space) {
    TENON_TRY(Operand out, local_operand(id));
    out.buffer = add_buffer(out.name, space, out.bytes());
    return out;
  }

  Operand scratch(const std::string& name, Dtype dtype, std::vector<int64_t> dims) {
    Operand out{kNone, 0, dtype, std::move(dims), name};
    out.buffer = add_buffer(name, Space::arena, out.bytes());
    return out;
  }

  static Operand part(const Operand& whole, int64_t first, std::vector<int64_t> dims, const std::string& name) {
    return {whole.buffer, whole.offset + static_cast<uint64_t>(first * size_of(whole.dtype)), whole.dtype,
            std::move(dims), name};
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
        operand.buffer = add_buffer(operand.name, Space::state, operand.bytes());
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
  void find_crossings() {
    leaf_of_.assign(graph_.values().size(), kNone);
    for (size_t i = 0; i < joint_.leaves.size(); ++i) {
      for (ValueId id = joint_.leaves[i].grad; id != kNone;) {
        leaf_of_[id] = static_cast<uint32_t>(i);
        const Op& op = graph_.op(graph_.value(id).producer);
        const auto k = std::find(op.out.begin(), op.out.end(), id) - op.out.begin();
        id = op.acc.empty() ? kNone : op.acc[static_cast<size_t>(k)];
      }
    }
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
      if (op.phase == Phase::step && collective_of(*op.def) == Collective::all_reduce && op.in[0] == grad) return op.axes;
    }
    return {};
  }

  void make_buckets() {
    bucket_of_leaf_.assign(joint_.leaves.size(), {0, 0});
    for (size_t i = 0; i < joint_.leaves.size(); ++i) {
      const ValueId grad = joint_.leaves[i].grad;
      const auto operand = local_operand(grad);
      const uint64_t bytes = aligned(operand->bytes());
      const std::vector<AxisId> axes = reduction_of(grad);
      if (buckets_.empty() || buckets_.back().axes != axes || buckets_.back().bytes + bytes > options_.bucket_bytes) {
        buckets_.push_back({});
        buckets_.back().axes = axes;
      }
      Bucket& bucket = buckets_.back();
      bucket_of_leaf_[i] = {buckets_.size() - 1, bucket.leaves.size()};
      bucket.leaves.push_back(i);
      bucket.offsets.push_back(bucket.bytes);
      bucket.bytes += bytes;
      bucket.last_op = std::max(bucket.last_op, graph_.value(grad).producer);
    }
    folded_.assign(buckets_.size(), {});
    bucket_now_.assign(buckets_.size(), Operand{});
    for (size_t b = 0; b < buckets_.size(); ++b) buckets_of_op_[buckets_[b].last_op].push_back(b);
  }

  // -- one microbatch -------------------------------------------------------------------------------
  Status emit_microbatch(int mb) {
    microbatch_ = mb;
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
        for (size_t b : it->second) TENON_CHECK(complete(b));
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

  bool last_microbatch() const { return microbatch_ + 1 == options_.microbatches; }

  Status complete(size_t b) {
    Bucket& bucket = buckets_[b];
    Operand now = bucket_now_[b];
    if (options_.exact) now = fold(folded_[b], now);
    if (!last_microbatch()) return {};
    if (!bucket.axes.empty()) now = all_reduce(now, bucket.axes, Phase::step);
    for (size_t i = 0; i < bucket.leaves.size(); ++i) {
      Operand& operand = at_[joint_.leaves[bucket.leaves[i]].grad];
      operand.buffer = now.buffer;
      operand.offset = now.offset + bucket.offsets[i];
    }
    return {};
  }

  // Adds `now` to what earlier microbatches left. Exact: a binary counter, which is the fixed tree.
  Operand fold(std::vector<std::pair<int, Operand>>& stack, Operand now) {
    int level = 0;
    while (!stack.empty() && (!options_.exact || stack.back().first == level)) {
      now = add(stack.back().second, now, Phase::weight_grad);
      stack.pop_back();
      ++level;
    }
    stack.emplace_back(level, now);
    return now;
  }

  Operand add(const Operand& a, const Operand& b, Phase phase) {
    Instr instr;
    instr.kind = "add";
    instr.phase = phase;
    instr.microbatch = phase == Phase::step ? -1 : microbatch_;
    instr.in = {a, b};
    instr.out = {a};
    instr.inplace = 0;
    program_.instrs.push_back(std::move(instr));
    return a;
  }

  Status emit_op(const Op& op) {
    if (collective_of(*op.def) != Collective::none) return emit_collective(op);
    Instr instr = start_instr(op);
    for (ValueId id : op.in) instr.in.push_back(at_[id]);
    instr.accumulate = !op.acc.empty();
    for (size_t k = 0; k < op.out.size(); ++k) {
      TENON_CHECK(bind_output(op, k, instr));
      instr.out.push_back(at_[op.out[k]]);
    }
    for (ValueId id : op.in) --uses_[id];
    program_.flops += flops_of(graph_, op) / static_cast<double>(program_.mesh.world());
    program_.instrs.push_back(std::move(instr));
    return {};
  }

  Instr start_instr(const Op& op) const {
    Instr instr;
    instr.kind = op.def->kind;
    instr.phase = op.phase;
    instr.microbatch = op.phase == Phase::step ? -1 : microbatch_;
    instr.layer = op.layer;
    instr.attrs = op.attrs;
    return instr;
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
    const bool keep = !options_.exact && microbatch_ > 0;
    if (keep) instr.accumulate = true;
    else if (!instr.accumulate && !fresh_bucket(b)) {
      const int64_t n = static_cast<int64_t>(bucket.bytes) / size_of(graph_.real);
      bucket_now_[b] = scratch("grads." + std::to_string(b), graph_.real, {n});
      bucket_microbatch_[b] = microbatch_;
    }
    TENON_TRY(Operand operand, local_operand(id));
    operand.buffer = bucket_now_[b].buffer;
    operand.offset = bucket.offsets[k];
    at_[id] = operand;
    return {};
  }

  bool fresh_bucket(size_t b) const {
    const auto it = bucket_microbatch_.find(b);
    return it != bucket_microbatch_.end() && it->second == microbatch_;
  }

  // -- collectives ----------------------------------------------------------------------------------
  uint32_t lane(AxisId axis) {
    if (lane_of_axis_[axis] == kNone) {
      lane_of_axis_[axis] = static_cast<uint32_t>(program_.lanes.size());
      program_.lanes.push_back(program_.mesh.axes[axis].name);
    }
    return lane_of_axis_[axis];
  }

  void collective(const char* kind, const std::vector<AxisId>& axes, Phase phase, const Operand& in, const Operand& out) {
    Instr instr;
    instr.kind = kind;
    instr.phase = phase;
    instr.microbatch = phase == Phase::step ? -1 : microbatch_;
    instr.lane = lane(axes[0]);
    instr.in = {in};
    instr.out = {out};
    instr.axes = axes;
    program_.instrs.push_back(std::move(instr));
  }

  // In place. In exact mode without a comm plugin that adds in the tree: exchange parts, add them here.
  Operand all_reduce(const Operand& value, const std::vector<AxisId>& axes, Phase phase) {
    if (!options_.exact || options_.tree_order) {
      collective("all_reduce", axes, phase, value, value);
      return value;
    }
    const int64_t n = program_.mesh.size(axes);
    const int64_t part_size = (value.elements() + n - 1) / n;
    Operand sent = scratch(value.name + ".padded", value.dtype, {n, part_size});
    copy(value, sent, phase);
    Operand parts = scratch(value.name + ".parts", value.dtype, {n, part_size});
    collective("all_to_all", axes, phase, sent, parts);
    const Operand mine = tree(parts, 0, n, part_size, phase);
    collective("all_gather", axes, phase, mine, sent);
    copy(sent, value, phase);
    return value;
  }

  // x[lo..lo+n) added in the tree of abi/tenon/comm.h.
  Operand tree(const Operand& parts, int64_t lo, int64_t n, int64_t part_size, Phase phase) {
    if (n == 1) return part(parts, lo * part_size, {part_size}, parts.name + "." + std::to_string(lo));
    int64_t half = 1;
    while (half * 2 < n) half *= 2;
    const Operand left = tree(parts, lo, half, part_size, phase);
    const Operand right = tree(parts, lo + half, n - half, part_size, phase);
    return add(left, right, phase);
  }

  // Copies the common prefix of two flat tensors.
  void copy(const Operand& from, const Operand& to, Phase phase) {
    const int64_t n = std::min(from.elements(), to.elements());
    slice_kernel(part(from, 0, {n}, from.name), part(to, 0, {n}, to.name), 0, 0, n, {}, phase);
  }

  void slice_kernel(const Operand& from, const Operand& to, int64_t dim, int64_t start, int64_t size,
                    const std::vector<AxisId>& axes, Phase phase) {
    Instr instr;
    instr.kind = "slice";
    instr.phase = phase;
    instr.microbatch = phase == Phase::step ? -1 : microbatch_;
    instr.in = {from};
    instr.out = {to};
    instr.attrs = {{"dim", dim}, {"start", start}, {"size", size}};
    instr.axes = axes;  // start is then that times the coordinate on these axes
    program_.instrs.push_back(std::move(instr));
  }

  void concat_kernel(std::vector<Operand> from, const Operand& to, int64_t dim, Phase phase) {
    Instr instr;
    instr.kind = "concat";
    instr.phase = phase;
    instr.microbatch = phase == Phase::step ? -1 : microbatch_;
    instr.in = std::move(from);
    instr.out = {to};
    instr.attrs = {{"dim", dim}};
    program_.instrs.push_back(std::move(instr));
  }

  // n equal parts of a tensor along dim, one behind the other in memory.
  Operand pack(const Operand& from, int64_t dim, int64_t n, Phase phase) {
    std::vector<int64_t> dims = from.dims;
    dims[static_cast<size_t>(dim)] /= n;
    const Operand packed = scratch(from.name + ".packed", from.dtype, {n, from.elements() / n});
    for (int64_t i = 0; i < n; ++i) {
      slice_kernel(from, part(packed, i * packed.dims[1], dims, packed.name), dim, i * dims[static_cast<size_t>(dim)],
                   dims[static_cast<size_t>(dim)], {}, phase);
    }
    return packed;
  }

  void unpack(const Operand& packed, const std::vector<int64_t>& part_dims, const Operand& to, int64_t dim, Phase phase) {
    std::vector<Operand> parts;
    for (int64_t i = 0; i < packed.dims[0]; ++i) parts.push_back(part(packed, i * packed.dims[1], part_dims, packed.name));
    concat_kernel(std::move(parts), to, dim, phase);
  }

  Status emit_collective(const Op& op) {
    const ValueId in = op.in[0], out = op.out[0];
    const Collective kind = collective_of(*op.def);
    const int64_t n = program_.mesh.size(op.axes);
    if (kind == Collective::all_reduce && leaf_of_[in] != kNone) {
      at_[out] = at_[in];  // its bucket has been reduced
      return {};
    }
    if (kind == Collective::all_reduce && uses_[in] == 1) {
      at_[out] = all_reduce(at_[in], op.axes, op.phase);
      return {};
    }
    TENON_TRY(at_[out], allocate(out, Space::arena));
    const auto from = graph_.value(in).placement.sharded_dim(op.axes[0]);
    const auto to = graph_.value(out).placement.sharded_dim(op.axes[0]);
    const auto from_dim = static_cast<int64_t>(from.value_or(0)), to_dim = static_cast<int64_t>(to.value_or(0));
    const Operand gathered = scratch(at_[in].name + ".parts", at_[in].dtype, {n, at_[in].elements()});
    switch (kind) {
      case Collective::all_reduce:
        copy(at_[in], at_[out], op.phase);
        all_reduce(at_[out], op.axes, op.phase);
        break;
      case Collective::reduce_scatter: collective("reduce_scatter", op.axes, op.phase, pack(at_[in], to_dim, n, op.phase), at_[out]); break;
      case Collective::all_gather:
        collective("all_gather", op.axes, op.phase, at_[in], gathered);
        unpack(gathered, at_[in].dims, at_[out], from_dim, op.phase);
        break;
      case Collective::all_to_all: {
        const Operand sent = pack(at_[in], to_dim, n, op.phase);
        const Operand received = scratch(at_[in].name + ".parts", at_[in].dtype, sent.dims);
        collective("all_to_all", op.axes, op.phase, sent, received);
        std::vector<int64_t> dims = at_[in].dims;
        dims[static_cast<size_t>(to_dim)] /= n;
        unpack(received, dims, at_[out], from_dim, op.phase);
        break;
      }
      case Collective::slice:
        slice_kernel(at_[in], at_[out], to_dim, at_[out].dims[static_cast<size_t>(to_dim)],
                     at_[out].dims[static_cast<size_t>(to_dim)], op.axes, op.phase);
        break;
      case Collective::none: break;
    }
    --uses_[in];
    return {};
  }

  // -- once per step --------------------------------------------------------------------------------
  Status emit_step() {
    std::vector<Instr> updates(optimizer_.groups.size());
    for (const Op& op : graph_.ops()) {
      if (op.phase != Phase::step) continue;
      if (std::string_view(op.def->kind) == "update") TENON_CHECK(add_update(op, updates));
      else TENON_CHECK(emit_op(op));
    }
    for (size_t group = 0; group < updates.size(); ++group) {
      Instr& instr = updates[group];
      if (instr.in.empty()) continue;
      instr.kind = "update";
      instr.phase = Phase::step;
      instr.group = static_cast<int>(group);
      instr.in.push_back(at_[joint_.outputs.at("scale")]);
      program_.instrs.push_back(std::move(instr));
    }
    return {};
  }

  Status add_update(const Op& op, std::vector<Instr>& updates) {
    const ValueId param = op.in[1];
    const auto index = static_cast<size_t>(std::find(joint_.params.begin(), joint_.params.end(), param) - joint_.params.begin());
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
  Program program_;
  std::vector<Operand> at_;          // where each value is now
  std::vector<int> uses_;            // reads left in this microbatch
  std::vector<uint32_t> leaf_of_;    // value -> leaf whose gradient chain it belongs to
  std::vector<bool> crossing_;       // made per microbatch, read by the step
  std::vector<Bucket> buckets_;
  std::vector<std::pair<size_t, size_t>> bucket_of_leaf_;  // bucket, place in it
  std::map<OpId, std::vector<size_t>> buckets_of_op_;
  std::vector<Operand> bucket_now_;
  std::map<size_t, int> bucket_microbatch_;
  std::vector<std::vector<std::pair<int, Operand>>> folded_;
  std::map<ValueId, std::vector<std::pair<int, Operand>>> scalars_;
  std::vector<uint32_t> lane_of_axis_;
  int microbatch_ = 0;
};

struct Access {
  InstrId instr;
  uint64_t lo, hi;
  bool write;
};

}  // namespace

Result<Program> emit(const JointGraph& joint, const Mesh& mesh, ProgramKind kind, const EmitOptions& options,
                     const OptimizerPlan& optimizer) {
  return Emitter(joint, mesh, kind, options, optimizer).run();
}

void schedule_waits(Program& program) {
  const auto lanes = static_cast<uint32_t>(program.lanes.size());
  std::vector<std::vector<Access>> accesses(program.buffers.size());
  std::vector<std::vector<uint32_t>> clock(program.instrs.size(), std::vector<uint32_t>(lanes));
  std::vector<uint32_t> position(program.instrs.size()), count(lanes);
  std::vector<InstrId> last(lanes, kNone);
  const auto learn = [&](InstrId to, InstrId from) {
    for (uint32_t l = 0; l < lanes; ++l) clock[to][l] = std::max(clock[to][l], clock[from][l]);
    uint32_t& mine = clock[to][program.instrs[from].lane];
    mine = std::max(mine, position[from]);
  };
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    Instr& instr = program.instrs[id];
    instr.waits.clear();
    position[id] = ++count[instr.lane];
    if (last[instr.lane] != kNone) learn(id, last[instr.lane]);
    last[instr.lane] = id;
    std::vector<InstrId> needed;
    const auto conflict = [&](const Operand& operand, bool write) {
      if (operand.buffer == kNone) return;
      const uint64_t lo = operand.offset, hi = operand.offset + operand.bytes();
      for (const Access& a : accesses[operand.buffer]) {
        if ((write || a.write) && a.lo < hi && lo < a.hi && a.instr != id) needed.push_back(a.instr);
      }
      accesses[operand.buffer].push_back({id, lo, hi, write});
    };
    for (const Operand& operand : instr.in) conflict(operand, false);
    for (const Operand& operand : instr.out) conflict(operand, true);
    // Latest first: an instruction waited for brings what it knew itself.
    std::sort(needed.begin(), needed.end(), std::greater<>());
    for (InstrId from : needed) {
      if (clock[id][program.instrs[from].lane] >= position[from]) continue;
      instr.waits.push_back(from);
      learn(id, from);
    }
    std::sort(instr.waits.begin(), instr.waits.end());
  }
}

}  // namespace tenon
