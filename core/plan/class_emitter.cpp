#include "plan/class_emitter.h"

#include <algorithm>

#include "plan/collectives.h"
#include "plan/expand.h"

namespace tenon {
namespace {

constexpr int kWholeStep = -1;  // instead of a microbatch

// Axes of the factor whose shards a kernel must know the place of; empty: not sharded. And its local size.
struct Offset {
  std::vector<AxisId> axes;
  int64_t size = 0;
};

Result<Offset> offset_of(const Graph& graph, const Op& op, const std::vector<Operand>& in,
                         const std::vector<Operand>& out) {
  if (op.def->offset[0] == '\0') return Offset{};
  std::vector<size_t> ranks;
  for (ValueId id : op.in) ranks.push_back(graph.value(id).dims.size());
  TENON_TRY(const Rule rule, rule_of(*op.def, ranks));
  const auto search = [&](const std::vector<std::vector<int>>& operands, const std::vector<ValueId>& ids,
                          const std::vector<Operand>& local) -> std::optional<Offset> {
    for (size_t i = 0; i < operands.size(); ++i) {
      for (size_t d = 0; d < operands[i].size(); ++d) {
        if (rule.factors[static_cast<size_t>(operands[i][d])].name != op.def->offset) continue;
        return Offset{graph.value(ids[i]).placement.dims[d], local[i].dims[d]};
      }
    }
    return std::nullopt;
  };
  if (const auto found = search(rule.inputs, op.in, in)) return *found;
  return search(rule.outputs, op.out, out).value_or(Offset{});
}

}  // namespace

ClassEmitter::ClassEmitter(const EmitContext& context, int index)
    : context_(context),
      graph_(context.joint.graph),
      index_(index),
      builder_(name_of(context.kind), context.mesh, context.rows.microbatches),
      program_(builder_.program()) {}

// -- memory -----------------------------------------------------------------------------------------

Result<Operand> ClassEmitter::local_operand(ValueId id) const {
  const Value& value = graph_.value(id);
  TENON_TRY(const Dims local, local_dims(value.dims, value.placement, program_.mesh));
  Operand out{kNone, 0, value.dtype, {}, value.name};
  for (const Dim& dim : local) out.dims.push_back(dim.size);
  return out;
}

Status ClassEmitter::open() {
  TENON_CHECK(place_params());
  TENON_CHECK(place_inputs());
  count_uses();
  return {};
}

Status ClassEmitter::place_params() {
  const auto& mine = context_.params.params[static_cast<size_t>(index_)];
  const bool training = context_.kind == ProgramKind::train;
  for (size_t i : mine) {
    const Value& value = graph_.value(context_.joint.params[i]);
    TENON_TRY(const Operand operand, local_operand(context_.joint.params[i]));
    program_.params.push_back({value.name, operand, value.dims, value.placement, value.init});
    program_.params.back().contributions = context_.params.contributions[i];
  }
  const size_t n = buckets().size();
  grads_.resize(n);
  gathered_.resize(n);
  folds_.resize(n);
  contributions_.assign(n, 0);
  done_.assign(n, 0);
  for (size_t b = 0; b < n; ++b) {
    const FlatLayout& layout = buckets()[b].layout;
    program_.layouts.push_back(layout);
    const bool flat = layout.level >= 3;
    const int64_t elements = flat ? layout.most() : layout.elements;
    Operand storage{kNone, 0, graph_.real, {elements}, "params." + std::to_string(b)};
    storage.buffer = builder_.add_buffer(storage.name, Space::param, storage.bytes());
    program_.buffers[storage.buffer].gaps = true;
    param_storage_.push_back(storage);
    for (size_t l = 0; l < layout.leaves.size(); ++l) {
      TensorInfo& info = program_.params[layout.leaves[l].param];
      info.layout = static_cast<uint32_t>(b);
      info.leaf = static_cast<uint32_t>(l);
      info.flat = flat;
      info.copy = !buckets()[b].owner;
      info.operand.buffer = storage.buffer;
      if (!flat) info.operand.offset = static_cast<uint64_t>(layout.leaves[l].first * size_of(storage.dtype));
      param_at_[context_.joint.params[mine[layout.leaves[l].param]]] = {b, l};
      if (!training) continue;
      const LeafGrad& grad = context_.joint.leaves[buckets()[b].leaves[l]];
      for (const Partial& p : graph_.value(grad.grad).placement.partials) info.partial.push_back(p.axis);
      for (ValueId id = grad.grad; id != kNone;) {
        leaf_at_[id] = {b, l};
        const Op& op = graph_.op(graph_.value(id).producer);
        contributions_[b] += this->mine(op.stage) ? 1 : 0;
        const auto k = static_cast<size_t>(std::ranges::find(op.out, id) - op.out.begin());
        id = op.acc.empty() ? kNone : op.acc[k];
      }
    }
    if (training && buckets()[b].owner) place_states(b);
  }
  return {};
}

// One buffer for each slot that any group of the bucket has.
void ClassEmitter::place_states(size_t bucket) {
  const FlatLayout& layout = buckets()[bucket].layout;
  std::vector<Operand>& states = states_.emplace(bucket, std::vector<Operand>{}).first->second;
  for (size_t l = 0; l < layout.leaves.size(); ++l) {
    const FlatLayout::Leaf& leaf = layout.leaves[l];
    const TensorInfo& param = program_.params[leaf.param];
    for (const StateSlot& slot : context_.optimizer.groups[static_cast<size_t>(leaf.group)]) {
      auto it = std::ranges::find_if(
          states, [&](const Operand& s) { return s.name == slot.name && s.dtype == slot.dtype; });
      if (it == states.end()) {
        Operand made{kNone, 0, slot.dtype, {layout.level > 0 ? layout.most() : layout.elements}, slot.name};
        made.buffer =
            builder_.add_buffer(slot.name + "." + std::to_string(bucket), Space::state, made.bytes());
        it = states.insert(states.end(), made);
      }
      TensorInfo info = param;
      info.name = param.name + "/" + context_.optimizer.plugin + "." + slot.name;
      info.operand.name = info.name;
      info.operand.dtype = slot.dtype;
      info.operand.buffer = it->buffer;
      info.operand.offset = layout.level > 0 ? 0 : static_cast<uint64_t>(leaf.first * size_of(slot.dtype));
      info.flat = layout.level > 0;
      info.init = Init{};
      program_.states.push_back(std::move(info));
    }
  }
}

Status ClassEmitter::place_inputs() {
  const std::string step_wide = "step";
  const Placement& tokens = graph_.value(context_.joint.inputs.at("tokens")).placement;
  program_.batch_axes = tokens.dims[0];
  program_.seq_axes = tokens.dims[1];
  for (int mb = 0; mb < context_.rows.microbatches; ++mb) {
    std::map<std::string, Operand> set;
    for (const auto& [name, id] : context_.joint.inputs) {
      if (mb > 0 && name == step_wide) {
        set[name] = program_.inputs[0][name];
        continue;
      }
      TENON_TRY(set[name], local_operand(id));
      set[name].buffer = builder_.add_buffer(name, Space::input, set[name].bytes());
    }
    program_.inputs.push_back(std::move(set));
  }
  return {};
}

void ClassEmitter::count_uses() {
  uses_.assign(graph_.values().size(), 0);
  for (const Op& op : graph_.ops()) {
    if (op.phase == Phase::step || !mine(op.stage)) continue;
    for (ValueId id : op.in) ++uses_[id];
  }
}

// -- values -----------------------------------------------------------------------------------------

const Operand& ClassEmitter::at(ValueId id, int microbatch) const {
  return live_.at(key(id, microbatch)).operand;
}

Result<Operand> ClassEmitter::expect(ValueId id, int microbatch) {
  TENON_TRY(Operand out, local_operand(id));
  out.buffer = builder_.add_buffer(out.name, Space::arena, out.bytes());
  live_[key(id, microbatch)] = {out, uses_[id]};
  return out;
}

std::optional<Operand> ClassEmitter::folded(ValueId id) const {
  if (const auto it = step_values_.find(id); it != step_values_.end()) return it->second;
  const auto it = scalars_.find(id);
  return it == scalars_.end() ? std::nullopt : std::optional(it->second.back().second);
}

Result<Operand> ClassEmitter::read(ValueId id) {
  const Value& value = graph_.value(id);
  if (const auto it = param_at_.find(id); it != param_at_.end()) {
    const auto [b, l] = it->second;
    const FlatLayout& layout = buckets()[b].layout;
    TENON_TRY(const Operand local, local_operand(id));
    return part(layout.level >= 3 ? gathered(b) : param_storage_[b], layout.leaves[l].first, local.dims,
                value.name);
  }
  if (value.role == Role::input && value.producer == kNone)
    return program_.inputs[static_cast<size_t>(builder_.microbatch())].at(value.name);
  const auto it = live_.find(key(id, builder_.microbatch()));
  if (it == live_.end()) {
    return Error{"P030",
                 "'" + value.name + "' is not there when stage " + std::to_string(row_->stage) + " reads it",
                 std::string(name_of(context_.kind)) + " program", "", TENON_E_INTERNAL};
  }
  return it->second.operand;
}

void ClassEmitter::release(ValueId id) {
  const auto it = live_.find(key(id, builder_.microbatch()));
  if (it != live_.end() && it->second.uses <= 0) live_.erase(it);
}

// All of a bucket that rests in parts; gathered at most once in a row of the schedule, and the one that the
// row needs next is started already.
Operand ClassEmitter::gathered(size_t bucket) {
  prefetch(bucket);
  const auto& order = gather_order_.at({static_cast<int>(row_->kind), row_->stage});
  const auto next = std::ranges::find(order, bucket) + 1;
  if (next != order.end()) prefetch(*next);
  return *gathered_[bucket];
}

void ClassEmitter::prefetch(size_t bucket) {
  if (gathered_[bucket]) return;
  const FlatLayout& layout = buckets()[bucket].layout;
  gathered_[bucket] = builder_.scratch("gathered." + std::to_string(bucket), graph_.real, {layout.elements});
  program_.buffers[gathered_[bucket]->buffer].gaps = true;
  builder_.collective("all_gather", layout.axes, Phase::forward, param_storage_[bucket], *gathered_[bucket]);
  program_.instrs.back().layout = static_cast<int32_t>(bucket);
}

// -- rows -------------------------------------------------------------------------------------------

Status ClassEmitter::run(const Row& row, const std::function<void(ValueId)>& made) {
  row_ = &row;
  builder_.enter(row.stage, row.microbatch);
  const std::vector<OpId>& ops = context_.stages.ops(row.kind, row.stage);
  auto& order = gather_order_[{static_cast<int>(row.kind), row.stage}];
  for (OpId id : order.empty() ? ops : std::vector<OpId>{}) {
    for (ValueId in : graph_.op(id).in) {
      const auto it = param_at_.find(in);
      if (it == param_at_.end() || buckets()[it->second.first].layout.level < 3) continue;
      if (std::ranges::count(order, it->second.first) == 0) order.push_back(it->second.first);
    }
  }
  for (OpId id : ops) {
    TENON_CHECK(emit_op(id));
    const Op& op = graph_.op(id);
    for (ValueId out : op.out) {
      const auto leaf = leaf_at_.find(out);
      if (leaf != leaf_at_.end()) {
        Filling& filling = filling_.at(
            {leaf->second.first, per_microbatch(leaf->second.first) ? row.microbatch : kWholeStep});
        if (--filling.left == 0) completed(leaf->second.first);
        continue;
      }
      if (context_.stages.crossing[out]) fold(scalars_[out], at(out, row.microbatch));
      if (!context_.stages.readers[out].empty()) made(out);
      release(out);
    }
  }
  for (auto& operand : gathered_) operand.reset();
  row_ = nullptr;
  return {};
}

Status ClassEmitter::emit_op(OpId id) {
  const Op& op = graph_.op(id);
  TENON_CHECK(collective_of(*op.def) != Collective::none ? emit_collective(op) : emit_kernel(op));
  for (ValueId in : op.in) {
    const auto it = live_.find(key(in, builder_.microbatch()));
    if (it == live_.end()) continue;
    --it->second.uses;
    release(in);
  }
  return {};
}

Status ClassEmitter::emit_kernel(const Op& op) {
  Instr instr = builder_.begin(op.def->kind, op.phase);
  instr.layer = op.layer;
  instr.attrs = op.attrs;
  for (ValueId id : op.in) {
    TENON_TRY(Operand operand, read(id));
    instr.in.push_back(std::move(operand));
  }
  for (size_t k = 0; k < op.out.size(); ++k) TENON_CHECK(bind_output(op, k, instr));
  instr.flops = context_.flops[static_cast<size_t>(&op - graph_.ops().data())] /
                static_cast<double>(context_.work_share);
  program_.flops += instr.flops;
  if (const Expansion* expansion = find_expansion(op.def->kind)) {
    const std::vector<AxisId> axes = expansion->axes(graph_, op);
    expansion->emit(builder_, std::move(instr), axes);
    return {};
  }
  TENON_TRY(const Offset offset, offset_of(graph_, op, instr.in, instr.out));
  if (!offset.axes.empty()) {
    instr.kind = op.def->shard_kind;
    instr.attrs = {{"start", int64_t{0}}};
    instr.axes = offset.axes;
    instr.offset_step = offset.size;
  }
  builder_.push(std::move(instr));
  return {};
}

Status ClassEmitter::bind_output(const Op& op, size_t k, Instr& instr) {
  const ValueId id = op.out[k];
  if (leaf_at_.contains(id)) return bind_leaf(id, instr);
  TENON_TRY(Operand operand, local_operand(id));
  const auto source = op.def->inplace < 0 ? size_t{0} : static_cast<size_t>(op.def->inplace);
  if (k == 0 && op.def->inplace >= 0 && can_take_over(op.in[source]) &&
      operand.bytes() == instr.in[source].bytes()) {
    operand.buffer = instr.in[source].buffer;
    operand.offset = instr.in[source].offset;
    instr.inplace = op.def->inplace;
  } else {
    operand.buffer = builder_.add_buffer(operand.name, Space::arena, operand.bytes());
  }
  live_[key(id, builder_.microbatch())] = {operand, uses_[id]};
  instr.out.push_back(std::move(operand));
  return {};
}

// The memory of a value may be overwritten by its last reader, if nobody else can see it.
bool ClassEmitter::can_take_over(ValueId id) const {
  const auto it = live_.find(key(id, builder_.microbatch()));
  return it != live_.end() && it->second.uses == 1 && !context_.stages.crossing[id] &&
         context_.stages.readers[id].empty();
}

// -- gradients --------------------------------------------------------------------------------------

// Exact mode keeps the microbatches of a gradient apart, to add them in the fixed tree; so does a gradient
// that rests in parts, to be reduced to its part each time.
bool ClassEmitter::per_microbatch(size_t bucket) const {
  const Bucket& b = buckets()[bucket];
  return context_.options.exact ||
         (b.layout.level >= 2 && context_.rows.microbatches > 1 && !b.tied && b.steps.empty());
}

Status ClassEmitter::bind_leaf(ValueId id, Instr& instr) {
  const auto [b, l] = leaf_at_.at(id);
  const FlatLayout& layout = buckets()[b].layout;
  const bool apart = per_microbatch(b);
  Filling& filling = filling_[{b, apart ? builder_.microbatch() : kWholeStep}];
  if (filling.left == 0) {
    filling.memory = builder_.scratch("grads." + std::to_string(b), graph_.real, {layout.elements});
    program_.buffers[filling.memory.buffer].gaps = true;
    filling.written.assign(layout.leaves.size(), false);
    filling.left = contributions_[b] * (apart ? 1 : context_.rows.microbatches);
  }
  instr.accumulate = filling.written[l];
  filling.written[l] = true;
  TENON_TRY(const Operand local, local_operand(id));
  instr.out.push_back(part(filling.memory, layout.leaves[l].first, local.dims, local.name));
  return {};
}

void ClassEmitter::completed(size_t bucket) {
  const Bucket& b = buckets()[bucket];
  const bool apart = per_microbatch(bucket);
  const auto it = filling_.find({bucket, apart ? builder_.microbatch() : kWholeStep});
  Operand now = it->second.memory;
  filling_.erase(it);
  if (apart && !context_.options.exact) now = reduce_to_shard(bucket, now, Phase::weight_grad);
  if (apart) now = fold(folds_[bucket], now);
  done_[bucket] += apart ? 1 : context_.rows.microbatches;
  if (done_[bucket] < context_.rows.microbatches) return;
  grads_[bucket] = now;
  if (!b.tied) reduce(bucket);
}

// Adds `now` to what earlier microbatches left. Exact: a binary counter, which is the fixed tree.
Operand ClassEmitter::fold(std::vector<std::pair<int, Operand>>& stack, Operand now) {
  int level = 0;
  while (!stack.empty() && (!context_.options.exact || stack.back().first == level)) {
    now = builder_.add(stack.back().second, now, Phase::weight_grad);
    stack.pop_back();
    ++level;
  }
  stack.emplace_back(level, now);
  return now;
}

Operand ClassEmitter::shard_of(size_t bucket, const std::string& name, Dtype dtype) {
  return builder_.scratch(name + "." + std::to_string(bucket), dtype, {buckets()[bucket].layout.most()});
}

Operand ClassEmitter::reduce_to_shard(size_t bucket, const Operand& whole, Phase phase) {
  const Operand shard = shard_of(bucket, "grad_part", whole.dtype);
  builder_.collective("reduce_scatter", buckets()[bucket].layout.axes, phase, whole, shard);
  program_.instrs.back().layout = static_cast<int32_t>(bucket);
  return shard;
}

void ClassEmitter::reduce(size_t bucket) {
  const Bucket& b = buckets()[bucket];
  Operand& grad = grads_[bucket];
  if (!b.steps.empty()) {
    const Op& first = graph_.op(b.steps.front());
    const auto local = local_operand(first.in[0]);
    step_values_[first.in[0]] = part(grad, 0, local->dims, local->name);
    for (OpId id : b.steps) {
      const Status done = emit_step_op(graph_.op(id));
      if (!done.ok()) return;  // its operands have been sized before: cannot fail
    }
    grad = step_values_.at(graph_.op(b.steps.back()).out[0]);
    grad.dims = {grad.elements()};
    return;
  }
  std::vector<AxisId> rest = b.reduce;
  if (!b.layout.axes.empty()) {
    std::erase_if(rest, [&](AxisId axis) { return std::ranges::count(b.layout.axes, axis) > 0; });
    const bool parts_already = per_microbatch(bucket) && !context_.options.exact;
    if (!parts_already) grad = reduce_to_shard(bucket, grad, Phase::step);
  }
  if (!rest.empty()) emit_all_reduce(builder_, grad, rest, Phase::step, context_.tree);
}

// -- collectives ------------------------------------------------------------------------------------

Status ClassEmitter::emit_collective(const Op& op) {
  TENON_TRY(const Operand in, read(op.in[0]));
  TENON_TRY(Operand out, local_operand(op.out[0]));
  const bool all_reduce = collective_of(*op.def) == Collective::all_reduce;
  if (all_reduce && can_take_over(op.in[0])) {
    out.buffer = in.buffer;
    out.offset = in.offset;
  } else {
    out.buffer = builder_.add_buffer(out.name, Space::arena, out.bytes());
  }
  live_[key(op.out[0], builder_.microbatch())] = {out, uses_[op.out[0]]};
  emit_transfer(op, in, out);
  return {};
}

void ClassEmitter::emit_transfer(const Op& op, const Operand& in, const Operand& out) {
  if (collective_of(*op.def) == Collective::all_reduce) {
    if (in.buffer != out.buffer || in.offset != out.offset) builder_.copy(in, out, op.phase);
    emit_all_reduce(builder_, out, op.axes, op.phase, context_.tree);
    return;
  }
  const auto from = graph_.value(op.in[0]).placement.sharded_dim(op.axes[0]);
  const auto to = graph_.value(op.out[0]).placement.sharded_dim(op.axes[0]);
  const Reshard reshard{collective_of(*op.def), op.axes, static_cast<int64_t>(from.value_or(0)),
                        static_cast<int64_t>(to.value_or(0))};
  emit_reshard(builder_, reshard, in, out, op.phase, context_.tree);
}

Status ClassEmitter::emit_step_op(const Op& op) {
  const auto in = folded(op.in[0]);
  TENON_TRY(Operand out, local_operand(op.out[0]));
  if (!in || step_values_.contains(op.out[0])) return {};  // a gradient's, which its bucket reduces
  const bool all_reduce = collective_of(*op.def) == Collective::all_reduce;
  if (all_reduce) {
    out.buffer = in->buffer;
    out.offset = in->offset;
  } else {
    out.buffer = builder_.add_buffer(out.name, Space::arena, out.bytes());
  }
  step_values_[op.out[0]] = out;
  emit_transfer(op, *in, out);
  return {};
}

// -- once per step ----------------------------------------------------------------------------------

Operand ClassEmitter::norms() {
  const int64_t chunk = context_.options.exact ? kExactGranule : 0;
  struct Entry {
    std::vector<AxisId> axes;
    size_t bucket;
    int64_t first, count;
  };
  std::vector<Entry> entries;
  for (size_t b = 0; b < buckets().size(); ++b) {
    if (!buckets()[b].owner) continue;
    std::vector<AxisId> axes = buckets()[b].norm_axes;
    axes.insert(axes.end(), buckets()[b].layout.axes.begin(), buckets()[b].layout.axes.end());
    std::sort(axes.begin(), axes.end());
    int64_t count = 0;
    for (const auto& leaf : buckets()[b].layout.leaves) count += norm_entries(leaf, chunk);
    entries.push_back({std::move(axes), b, 0, count});
  }
  std::ranges::stable_sort(entries, {}, &Entry::axes);
  int64_t total = 0;
  bool cut = false;
  for (Entry& entry : entries) {
    entry.first = total;
    total += entry.count;
    cut |= !buckets()[entry.bucket].layout.axes.empty();
  }
  const Operand vector = builder_.scratch("norms", Dtype::f64, {total});
  if (cut) {  // the entries of other members' parts
    Instr zeros = builder_.begin("zeros", Phase::step);
    zeros.out = {vector};
    builder_.push(std::move(zeros));
  }
  for (const Entry& entry : entries) {
    Instr instr = builder_.begin("norms", Phase::step);
    instr.in = {grads_[entry.bucket]};
    instr.out = {part(vector, entry.first, {entry.count}, "norms")};
    instr.attrs = {{"chunk", chunk}};
    instr.layout = static_cast<int32_t>(entry.bucket);
    builder_.push(std::move(instr));
  }
  for (size_t i = 0; i < entries.size();) {
    size_t end = i;
    while (end < entries.size() && entries[end].axes == entries[i].axes) ++end;
    const int64_t first = entries[i].first, last = entries[end - 1].first + entries[end - 1].count;
    if (!entries[i].axes.empty()) {
      emit_all_reduce(builder_, part(vector, first, {last - first}, "norms"), entries[i].axes, Phase::step,
                      context_.tree);
    }
    i = end;
  }
  const Operand sum = builder_.scratch("sq", Dtype::f64, {});
  Instr instr = builder_.begin("sum", Phase::step);
  instr.in = {vector};
  instr.out = {sum};
  builder_.push(std::move(instr));
  return sum;
}

void ClassEmitter::update(size_t bucket, const Operand& scale) {
  const FlatLayout& layout = buckets()[bucket].layout;
  const bool own = layout.level == 1 || layout.level == 2;  // parameters rest whole, the update is of a part
  Operand params = param_storage_[bucket];
  const auto index = static_cast<int32_t>(bucket);
  if (own) {
    params = shard_of(bucket, "param_part", params.dtype);
    Instr instr = builder_.begin("own_part", Phase::step);
    instr.in = {param_storage_[bucket]};
    instr.out = {params};
    instr.layout = index;
    builder_.push(std::move(instr));
  }
  Instr instr = builder_.begin("update", Phase::step);
  instr.in = {grads_[bucket], scale};
  instr.out = {params};
  for (const Operand& state : states_.at(bucket)) instr.out.push_back(state);
  instr.layout = index;
  builder_.push(std::move(instr));
  if (!own) return;
  builder_.collective("all_gather", layout.axes, Phase::step, params, param_storage_[bucket]);
  program_.instrs.back().layout = index;
}

}  // namespace tenon
