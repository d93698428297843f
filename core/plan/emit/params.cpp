#include "plan/emit/params.h"

#include <algorithm>

#include "plan/emit/entries.h"
#include "plan/emit/gradients.h"

namespace tenon {

Status Params::open() {
  Program& program = scope_.builder.program();
  const EmitContext& context = scope_.context;
  for (size_t i : context.params.params[static_cast<size_t>(scope_.index)]) {
    const Value& value = scope_.graph().value(context.joint.params[i]);
    TENON_TRY(const Operand operand, scope_.local(context.joint.params[i]));
    program.params.push_back({value.name, operand, value.dims, value.placement, value.init});
  }
  gathered_.resize(scope_.buckets().size());
  for (size_t b = 0; b < scope_.buckets().size(); ++b) {
    TENON_CHECK(place(b));
    if (context.kind == ProgramKind::train && scope_.buckets()[b].owner) place_states(b);
  }
  return {};
}

Status Params::place(size_t bucket) {
  Program& program = scope_.builder.program();
  const EmitContext& context = scope_.context;
  const auto& mine = context.params.params[static_cast<size_t>(scope_.index)];
  const Bucket& from = scope_.buckets()[bucket];
  const FlatLayout& layout = from.layout;
  program.layouts.push_back(layout);
  const size_t depth = layout.param_depth;
  Operand storage{kNone,
                  0,
                  scope_.graph().real,
                  {most_at(program.mesh, layout, depth)},
                  "params." + std::to_string(bucket)};
  storage.buffer = scope_.builder.add_buffer(storage.name, Space::param, storage.bytes());
  program.buffers[storage.buffer].gaps = true;
  storage_.push_back(storage);
  for (size_t l = 0; l < layout.leaves.size(); ++l) {
    TensorInfo& info = program.params[layout.leaves[l].param];
    info.layout = static_cast<uint32_t>(bucket);
    info.leaf = static_cast<uint32_t>(l);
    info.depth = depth;
    info.copy = !from.owner;
    info.operand.buffer = storage.buffer;
    if (depth == 0)
      info.operand.offset = static_cast<uint64_t>(layout.leaves[l].first * size_of(storage.dtype));
    at_[context.joint.params[mine[layout.leaves[l].param]]] = {bucket, l};
  }
  return {};
}

// One buffer for each slot that any group of the bucket has.
void Params::place_states(size_t bucket) {
  Program& program = scope_.builder.program();
  const OptimizerPlan& optimizer = scope_.context.optimizer;
  const FlatLayout& layout = scope_.buckets()[bucket].layout;
  std::vector<Operand>& states = states_.emplace(bucket, std::vector<Operand>{}).first->second;
  for (const FlatLayout::Leaf& leaf : layout.leaves) {
    const TensorInfo& param = program.params[leaf.param];
    for (const StateSlot& slot : optimizer.groups[static_cast<size_t>(leaf.group)].slots) {
      const Operand* state = state_of_slot(states, slot.name, slot.dtype);
      if (state == nullptr) {
        Operand made{kNone, 0, slot.dtype, {most_at(program.mesh, layout, layout.depth())}, slot.name};
        made.buffer =
            scope_.builder.add_buffer(slot.name + "." + std::to_string(bucket), Space::state, made.bytes());
        state = &states.emplace_back(made);
      }
      TensorInfo info = param;
      info.name = state_name(param.name, optimizer, slot);
      info.operand.name = info.name;
      info.operand.dtype = slot.dtype;
      info.operand.buffer = state->buffer;
      info.operand.offset = layout.depth() > 0 ? 0 : static_cast<uint64_t>(leaf.first * size_of(slot.dtype));
      info.depth = layout.depth();
      info.init = Init{};
      program.states.push_back(std::move(info));
    }
  }
}

// -- reading ----------------------------------------------------------------------------------------

Result<std::optional<Operand>> Params::read(ValueId id, const Row& row) {
  const auto it = at_.find(id);
  if (it == at_.end()) return std::optional<Operand>();
  const auto [bucket, leaf] = it->second;
  const FlatLayout& layout = scope_.buckets()[bucket].layout;
  TENON_TRY(const Operand local, scope_.local(id));
  const Operand& whole = layout.param_depth > 0 ? gathered(bucket, row) : storage_[bucket];
  return std::optional(part(whole, layout.leaves[leaf].first, local.dims, scope_.graph().value(id).name));
}

void Params::enter(std::span<const Row> rows) {
  static constexpr size_t kAtOnce = 2;  // the first, and the one that is gathered while that is at work
  const bool keep = std::ranges::any_of(rows, [this](const Row& row) {
    const std::vector<size_t>& order = order_of(row);
    return std::ranges::count(std::span(order).first(std::min(kAtOnce, order.size())), read_last_) > 0;
  });
  for (size_t bucket = 0; bucket < gathered_.size(); ++bucket) {
    if (!keep || bucket != read_last_) gathered_[bucket].reset();
  }
}

// Buckets that rest in parts, by their first use in a row.
const std::vector<size_t>& Params::order_of(const Row& row) {
  auto& order = in_order_[{row.kind, row.stage}];
  if (!order.empty()) return order;
  for (OpId id : scope_.context.stages.ops(row.kind, row.stage)) {
    for (ValueId in : scope_.graph().op(id).in) {
      const auto it = at_.find(in);
      if (it == at_.end() || scope_.buckets()[it->second.bucket].layout.param_depth == 0) continue;
      if (std::ranges::count(order, it->second.bucket) == 0) order.push_back(it->second.bucket);
    }
  }
  return order;
}

// All of a bucket that rests in parts; gathered at most once in a row of the schedule, and the one that the
// row needs next is started already.
Operand Params::gathered(size_t bucket, const Row& row) {
  prefetch(bucket);
  read_last_ = bucket;
  const std::vector<size_t>& order = order_of(row);
  const auto next = std::ranges::find(order, bucket) + 1;
  if (next != order.end()) prefetch(*next);
  return *gathered_[bucket];
}

void Params::prefetch(size_t bucket) {
  if (gathered_[bucket]) return;
  const auto because = scope_.builder.because(scope_.why(Why::Because::gather, bucket));
  Program& program = scope_.builder.program();
  const FlatLayout& layout = scope_.buckets()[bucket].layout;
  const Operand whole =
      scope_.builder.scratch("gathered." + std::to_string(bucket), scope_.graph().real, {layout.elements});
  program.buffers[whole.buffer].gaps = true;
  scope_.builder.collective(TransferKind::all_gather, axes_between(layout, 0, layout.param_depth),
                            Phase::forward, storage_[bucket], whole);
  program.instrs.back().layout = static_cast<int32_t>(bucket);
  gathered_[bucket] = whole;
}

// -- update -----------------------------------------------------------------------------------------

const Operand& Params::updated(size_t bucket) {
  const FlatLayout& layout = scope_.buckets()[bucket].layout;
  if (layout.param_depth == layout.depth()) return storage_[bucket];
  const auto [it, fresh] = parts_.try_emplace(bucket);
  if (!fresh) return it->second;
  ProgramBuilder& builder = scope_.builder;
  const auto because = builder.because(scope_.why(Why::Because::update, bucket));
  it->second = builder.scratch("param_part." + std::to_string(bucket), storage_[bucket].dtype,
                               {most_at(builder.program().mesh, layout, layout.depth())});
  Instr instr = builder.begin("own_part", Phase::step);
  instr.in = {storage_[bucket]};
  instr.out = {it->second};
  instr.layout = static_cast<int32_t>(bucket);
  builder.push(std::move(instr));
  return it->second;
}

void Params::update(size_t bucket, const Operand& grad, const Operand& scale, const Operand* stats) {
  const Operand& params = updated(bucket);
  ProgramBuilder& builder = scope_.builder;
  const auto because = builder.because(scope_.why(Why::Because::update, bucket));
  const FlatLayout& layout = scope_.buckets()[bucket].layout;
  Instr instr = builder.begin("update", Phase::step);
  instr.in = {grad, scale};
  if (stats != nullptr) instr.in.push_back(*stats);
  instr.out = {params};
  for (const Operand& state : states_.at(bucket)) instr.out.push_back(state);
  instr.layout = static_cast<int32_t>(bucket);
  builder.push(std::move(instr));
  if (layout.param_depth == layout.depth()) return;
  builder.collective(TransferKind::all_gather, axes_between(layout, layout.param_depth, layout.depth()),
                     Phase::step, params, storage_[bucket]);
  builder.program().instrs.back().layout = static_cast<int32_t>(bucket);
}

Statistics Params::statistics(const Gradients& gradients, const Operand& scale) {
  const Entries entries(scope_, [&](const Bucket& bucket) {
    int64_t count = 0;
    for (const auto& leaf : bucket.layout.leaves)
      count += scope_.context.optimizer.groups[static_cast<size_t>(leaf.group)].stats;
    return count;
  });
  Statistics out;
  if (entries.all().empty()) return out;
  ProgramBuilder& builder = scope_.builder;
  const auto because = builder.because(scope_.why(Why::Because::stats, entries.all().front().bucket));
  const Operand vector = entries.open("stats");
  for (const Entry& entry : entries.all()) {
    const Operand& params = updated(entry.bucket);
    Instr instr = builder.begin("stats", Phase::step);
    instr.why = scope_.why(Why::Because::stats, entry.bucket);
    instr.in = {gradients.gradient(entry.bucket), scale, params};
    for (const Operand& state : states_.at(entry.bucket)) instr.in.push_back(state);
    instr.out = {part(vector, entry.first, {entry.count}, "stats")};
    instr.layout = static_cast<int32_t>(entry.bucket);
    out.emplace(entry.bucket, instr.out[0]);
    builder.push(std::move(instr));
  }
  entries.sum(vector, Why::Because::stats);
  return out;
}

}  // namespace tenon
