#include "plan/emit/gradients.h"

#include <algorithm>
#include <iterator>

#include "plan/emit/collectives.h"
#include "plan/emit/entries.h"

namespace tenon {
namespace {

constexpr int kWholeStep = -1;  // instead of a microbatch

}  // namespace

Operand Fold::add(ProgramBuilder& builder, Operand now, bool exact) {
  int level = 0;
  while (!stack_.empty() && (!exact || stack_.back().first == level)) {
    now = builder.add(stack_.back().second, now, Phase::weight_grad);
    stack_.pop_back();
    ++level;
  }
  stack_.emplace_back(level, now);
  return now;
}

Gradients::Gradients(Scope& scope) : scope_(scope) {
  const size_t n = scope.buckets().size();
  contributions_.assign(n, 0);
  done_.assign(n, 0);
  folds_.resize(n);
  gradients_.resize(n);
  if (scope.context.kind != ProgramKind::train) return;
  for (size_t b = 0; b < n; ++b) {
    for (size_t l = 0; l < scope.buckets()[b].leaves.size(); ++l) follow(b, l);
  }
}

// A gradient with several contributions is a chain of values, each added to the one before.
void Gradients::follow(size_t bucket, size_t leaf) {
  const Graph& graph = scope_.graph();
  for (ValueId id = scope_.context.joint.leaves[scope_.buckets()[bucket].leaves[leaf]].grad; id != kNone;) {
    at_[id] = {bucket, leaf};
    const Op& op = graph.op(graph.value(id).producer);
    contributions_[bucket] += scope_.owns(op.stage) ? 1 : 0;
    const auto k = static_cast<size_t>(std::ranges::find(op.out, id) - op.out.begin());
    id = op.acc.empty() ? kNone : op.acc[k];
  }
}

// As much as the parameters, but where steps of its own reshard it: before them it may be larger, as a
// gradient is that is a partial sum of all of a parameter of which this rank holds a part.
Result<int64_t> Gradients::elements_of(size_t bucket) const {
  const Bucket& b = scope_.buckets()[bucket];
  if (b.steps.empty()) return b.layout.elements;
  TENON_TRY(const Operand local, scope_.local(scope_.graph().op(b.steps.front()).in[0]));
  return local.elements();
}

// Exact mode keeps the microbatches of a gradient apart, to add them in the fixed tree; so does a gradient
// that rests in parts, to be reduced to its part each time.
bool Gradients::per_microbatch(size_t bucket) const {
  const Bucket& b = scope_.buckets()[bucket];
  return scope_.context.options.exact ||
         (b.layout.level >= 2 && scope_.context.rows.microbatches > 1 && !b.tied && b.steps.empty());
}

std::pair<size_t, int> Gradients::filling_key(size_t bucket) const {
  return {bucket, per_microbatch(bucket) ? scope_.builder.microbatch() : kWholeStep};
}

Status Gradients::bind(ValueId id, Instr& instr) {
  const auto [bucket, leaf] = at_.at(id);
  const FlatLayout& layout = scope_.buckets()[bucket].layout;
  Filling& filling = filling_[filling_key(bucket)];
  if (filling.left == 0) {
    ProgramBuilder& builder = scope_.builder;
    TENON_TRY(const int64_t elements, elements_of(bucket));
    filling.memory = builder.scratch("grads." + std::to_string(bucket), scope_.graph().real, {elements});
    builder.program().buffers[filling.memory.buffer].gaps = true;
    filling.written.assign(layout.leaves.size(), false);
    filling.left = contributions_[bucket] * (per_microbatch(bucket) ? 1 : scope_.context.rows.microbatches);
  }
  instr.accumulate = filling.written[leaf];
  filling.written[leaf] = true;
  TENON_TRY(const Operand local, scope_.local(id));
  instr.out.push_back(part(filling.memory, layout.leaves[leaf].first, local.dims, local.name));
  return {};
}

Status Gradients::contributed(ValueId id) {
  const size_t bucket = at_.at(id).bucket;
  const auto it = filling_.find(filling_key(bucket));
  if (--it->second.left > 0) return {};
  Operand now = it->second.memory;
  filling_.erase(it);
  const ProgramBuilder& builder = scope_.builder;
  if (!per_microbatch(bucket) || scope_.context.options.exact) return fold(bucket, now);
  const size_t older = underway_.size();
  go_on(underway_.emplace_back(Underway{bucket, now, 0, builder.stage(), builder.microbatch()}));
  return go_on_with(older);
}

// A gradient of one microbatch, or of all.
Status Gradients::fold(size_t bucket, Operand now) {
  const bool apart = per_microbatch(bucket);
  const auto because = scope_.builder.because(scope_.why(Why::Because::fold, bucket));
  if (apart) now = folds_[bucket].add(scope_.builder, now, scope_.context.options.exact);
  done_[bucket] += apart ? 1 : scope_.context.rows.microbatches;
  if (done_[bucket] < scope_.context.rows.microbatches) return {};
  gradients_[bucket] = now;
  return scope_.buckets()[bucket].tied ? Status{} : reduce(bucket);
}

// -- underway ---------------------------------------------------------------------------------------

Status Gradients::settle() {
  while (!underway_.empty()) TENON_CHECK(go_on_with(underway_.size()));
  return {};
}

// One transfer further: first to what this rank holds of the parameters, where that is less than all, then to
// what it updates.
void Gradients::go_on(Underway& one) {
  const FlatLayout& layout = scope_.buckets()[one.bucket].layout;
  const auto because = scope_.builder.because(scope_.why(Why::Because::gradient, one.bucket));
  const size_t inner = one.depth < layout.param_depth ? layout.param_depth : layout.depth();
  one.held = scatter(one.bucket, one.held, one.depth, inner, Phase::weight_grad);
  one.depth = inner;
}

// Each of the oldest that are underway.
Status Gradients::go_on_with(size_t most) {
  ProgramBuilder& builder = scope_.builder;
  const int stage = builder.stage(), microbatch = builder.microbatch();
  std::deque<Underway> left;
  for (; most > 0; --most, underway_.pop_front()) {
    Underway& one = underway_.front();
    builder.enter(one.stage, one.microbatch);
    if (one.depth < scope_.buckets()[one.bucket].layout.depth()) {
      go_on(one);
      left.push_back(std::move(one));
    } else {
      TENON_CHECK(fold(one.bucket, one.held));
    }
  }
  builder.enter(stage, microbatch);
  underway_.insert(underway_.begin(), std::make_move_iterator(left.begin()),
                   std::make_move_iterator(left.end()));
  return {};
}

// -- over the ranks ---------------------------------------------------------------------------------

// First to what this rank holds of the parameters, where that is less than all, then to what it updates.
Operand Gradients::reduce_to_part(size_t bucket, const Operand& whole) {
  const FlatLayout& layout = scope_.buckets()[bucket].layout;
  const auto because = scope_.builder.because(scope_.why(Why::Because::gradient, bucket));
  Operand now = whole;
  for (size_t outer = 0; outer < layout.depth();) {
    const size_t inner = outer < layout.param_depth ? layout.param_depth : layout.depth();
    now = scatter(bucket, now, outer, inner, Phase::step);
    outer = inner;
  }
  return now;
}

Operand Gradients::scatter(size_t bucket, const Operand& held, size_t outer, size_t inner, Phase phase) {
  ProgramBuilder& builder = scope_.builder;
  const FlatLayout& layout = scope_.buckets()[bucket].layout;
  Operand part = builder.scratch("grad_part." + std::to_string(bucket), held.dtype,
                                 {most_at(builder.program().mesh, layout, inner)});
  builder.collective(TransferKind::reduce_scatter, axes_between(layout, outer, inner), phase, held, part);
  builder.program().instrs.back().layout = static_cast<int32_t>(bucket);
  return part;
}

Status Gradients::reduce(size_t bucket) {
  const Bucket& b = scope_.buckets()[bucket];
  const auto because = scope_.builder.because(scope_.why(Why::Because::gradient, bucket));
  Operand& gradient = gradients_[bucket];
  if (!b.steps.empty()) {
    TENON_TRY(const Operand local, scope_.local(scope_.graph().op(b.steps.front()).in[0]));
    Operand now = part(gradient, 0, local.dims, local.name);
    for (OpId id : b.steps) {
      TENON_TRY(now, scope_.reshard_once(scope_.graph().op(id), now));
    }
    now.dims = {now.elements()};
    gradient = now;
    return {};
  }
  if (scope_.context.options.exact) return reduce_in_tree(bucket);
  std::vector<AxisId> rest = b.reduce;
  if (!b.layout.axes.empty()) {
    std::erase_if(rest, [&](AxisId axis) { return std::ranges::count(b.layout.axes, axis) > 0; });
    if (!per_microbatch(bucket)) gradient = reduce_to_part(bucket, gradient);
  }
  if (!rest.empty()) emit_all_reduce(scope_.builder, gradient, rest, Phase::step, scope_.context.tree);
  return {};
}

// In exact mode: the axes that share the batch are the upper levels of the fixed tree, minor ones first, and
// no other sum comes in between. Where that tree does not end in the parts that a rank updates, it keeps its
// own part of a sum that all have.
Status Gradients::reduce_in_tree(size_t bucket) {
  const Bucket& b = scope_.buckets()[bucket];
  const FlatLayout& layout = b.layout;
  const JointGraph& joint = scope_.context.joint;
  const auto among = [](const std::vector<AxisId>& axes, AxisId axis) {
    return std::ranges::count(axes, axis) > 0;
  };
  std::vector<AxisId> batch = joint.graph.value(joint.inputs.at("tokens")).placement.dims[0], rest = b.reduce;
  std::erase_if(batch, [&](AxisId axis) { return !among(b.reduce, axis); });
  std::erase_if(rest, [&](AxisId axis) { return among(batch, axis); });
  Operand& now = gradients_[bucket];
  const auto sum = [&](const std::vector<AxisId>& axes) {
    if (!axes.empty()) emit_all_reduce(scope_.builder, now, axes, Phase::step, scope_.context.tree);
  };
  for (size_t outer = 0; outer < layout.depth();) {
    const size_t inner = outer < layout.param_depth ? layout.param_depth : layout.depth();
    const std::vector<AxisId> group = axes_between(layout, outer, inner);
    std::vector<AxisId>& owed = batch.empty() ? rest : batch;
    const bool next = batch.empty() ? std::ranges::all_of(group, [&](AxisId a) { return among(rest, a); })
                                    : group.size() <= batch.size() &&
                                          std::equal(group.rbegin(), group.rend(), batch.rbegin());
    const bool done =
        std::ranges::none_of(group, [&](AxisId a) { return among(batch, a) || among(rest, a); });
    if (next) {
      now = scatter(bucket, now, outer, inner, Phase::step);
      std::erase_if(owed, [&](AxisId axis) { return among(group, axis); });
    } else if (done && outer == layout.param_depth) {
      now = own_part(bucket, now);
    } else if (owed.empty()) {
      return Error{
          "P036",
          "'" + scope_.builder.program().params[layout.leaves[0].param].name +
              "' rests in parts over axes whose sums the fixed tree of exact mode takes in another order",
          "/numerics/mode", "use numerics fast, or cut it over the batch's axes alone", TENON_E_RECIPE};
    } else {
      sum({owed.back()});
      owed.pop_back();
      continue;
    }
    outer = inner;
  }
  sum(batch);
  sum(rest);
  return {};
}

Operand Gradients::own_part(size_t bucket, const Operand& held) {
  ProgramBuilder& builder = scope_.builder;
  const FlatLayout& layout = scope_.buckets()[bucket].layout;
  Operand part = builder.scratch("grad_part." + std::to_string(bucket), held.dtype,
                                 {most_at(builder.program().mesh, layout, layout.depth())});
  Instr instr = builder.begin("own_part", Phase::step);
  instr.in = {held};
  instr.out = {part};
  instr.layout = static_cast<int32_t>(bucket);
  builder.push(std::move(instr));
  return part;
}

// -- norms ------------------------------------------------------------------------------------------

Operand Gradients::norms() {
  ProgramBuilder& builder = scope_.builder;
  const auto because = builder.because({Why::Because::norm, false, kNone, kNone});
  const int64_t chunk = scope_.context.options.exact ? kExactGranule : 0;
  const Entries entries(scope_, [chunk](const Bucket& bucket) {
    int64_t count = 0;
    for (const auto& leaf : bucket.layout.leaves) count += norm_entries(leaf, chunk);
    return count;
  });
  if (entries.all().empty()) {  // all parameters that the class reads are other classes'
    const Operand none = builder.scratch("sq", Dtype::f64, {});
    Instr zeros = builder.begin("zeros", Phase::step);
    zeros.out = {none};
    builder.push(std::move(zeros));
    return none;
  }
  const Operand vector = entries.open("norms");
  for (const Entry& entry : entries.all()) {
    Instr instr = builder.begin("norms", Phase::step);
    instr.why = scope_.why(Why::Because::norm, entry.bucket);
    instr.in = {gradients_[entry.bucket]};
    instr.out = {part(vector, entry.first, {entry.count}, "norms")};
    instr.attrs = {{"chunk", chunk}};
    instr.layout = static_cast<int32_t>(entry.bucket);
    builder.push(std::move(instr));
  }
  entries.sum(vector, Why::Because::norm);
  Operand sum = builder.scratch("sq", Dtype::f64, {});
  Instr instr = builder.begin("sum", Phase::step);
  instr.in = {vector};
  instr.out = {sum};
  builder.push(std::move(instr));
  return sum;
}

}  // namespace tenon
