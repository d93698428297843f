#include "graph/propagate.h"

#include <algorithm>
#include <functional>
#include <set>

#include "graph/ops.h"
#include "graph/reasons.h"

namespace tenon {
namespace {

Result<const Rule*> rule_that_fits(const Op& op) {
  if (op.rule != nullptr) return op.rule.get();
  return Error{"G001", "the operands do not fit the rule '" + op.def->rule + "'", "", "", TENON_E_ARGUMENT};
}

// One step of a reshard: the collective and the placement behind it.
struct Step {
  TransferKind kind;
  AxisId axis;
  Placement after;
  std::vector<AxisId> axes = {axis};  // more than one: the parts of an axis that was split
};

void drop(std::vector<AxisId>& axes, AxisId axis) { std::erase(axes, axis); }

// How many leading axes of a dim are already those of the target.
size_t agreed(const std::vector<AxisId>& from, const std::vector<AxisId>& to) {
  return static_cast<size_t>(std::mismatch(from.begin(), from.end(), to.begin(), to.end()).first -
                             from.begin());
}

// The dim of `to` on which `axis` comes next: appended there, it need not be moved again.
std::optional<size_t> landing(const Placement& from, const Placement& to, AxisId axis) {
  const auto d = to.sharded_dim(axis);
  if (!d) return std::nullopt;
  const auto &now = from.dims[*d], &then = to.dims[*d];
  const bool next = now.size() < then.size() && agreed(now, then) == now.size() && then[now.size()] == axis;
  return next ? d : std::nullopt;
}

Step move(TransferKind kind, AxisId axis, const Placement& from, std::optional<size_t> source,
          std::optional<size_t> target) {
  Step step{kind, axis, from};
  step.after.remove_partial(axis);
  if (source) drop(step.after.dims[*source], axis);
  if (target) step.after.dims[*target].push_back(axis);
  return step;
}

// A step that puts an axis where it stays.
std::optional<Step> landing_step(const Placement& from, const Placement& to) {
  for (const auto& dim : to.dims) {
    for (AxisId axis : dim) {
      const auto target = landing(from, to, axis);
      if (target && !from.sharded_dim(axis) && !from.is_partial(axis)) {
        return move(TransferKind::slice, axis, from, std::nullopt, target);
      }
    }
  }
  for (const Partial& partial : from.partials) {
    const auto target = landing(from, to, partial.axis);
    if (target) return move(TransferKind::reduce_scatter, partial.axis, from, std::nullopt, target);
  }
  for (size_t d = 0; d < from.dims.size(); ++d) {
    if (from.dims[d].size() == agreed(from.dims[d], to.dims[d])) continue;
    const AxisId axis = from.dims[d].back();
    const auto target = landing(from, to, axis);
    if (target && *target != d) return move(TransferKind::all_to_all, axis, from, d, target);
  }
  return std::nullopt;
}

// The next collective on the way from `from` to `to`, or nothing when they are equal. What makes the tensor
// smaller comes first. Only the innermost axis of a dim can leave it: the blocks of an outer one are not
// contiguous. Sums over the axes `first` come before all else, the last of them first.
std::optional<Step> next_step(const Placement& from, const Placement& to, const std::vector<AxisId>& first) {
  for (size_t i = first.size(); i-- > 0;) {
    if (!from.is_partial(first[i]) || to.is_partial(first[i])) continue;
    const auto target = landing(from, to, first[i]);
    return move(target ? TransferKind::reduce_scatter : TransferKind::all_reduce, first[i], from,
                std::nullopt, target);
  }
  if (auto step = landing_step(from, to)) return step;
  for (size_t d = 0; d < from.dims.size(); ++d) {
    if (from.dims[d].size() == agreed(from.dims[d], to.dims[d])) continue;
    return move(TransferKind::all_gather, from.dims[d].back(), from, d, std::nullopt);
  }
  for (const Partial& partial : from.partials) {
    if (!to.is_partial(partial.axis))
      return move(TransferKind::all_reduce, partial.axis, from, std::nullopt, std::nullopt);
  }
  return std::nullopt;
}

// The parts of an axis that was split, in the mesh's order, which a reshard moves as one: its first stands
// for all of them.
using Unit = std::vector<AxisId>;

// Behind one another on one dim, partial sums over all of them, or neither.
bool used_as_one(const Placement& placement, const Unit& unit) {
  if (const auto d = placement.sharded_dim(unit[0])) {
    const auto& dim = placement.dims[*d];
    const auto at = std::ranges::find(dim, unit[0]);
    return dim.end() - at >= static_cast<ptrdiff_t>(unit.size()) && std::equal(unit.begin(), unit.end(), at);
  }
  const auto like_the_first = [&](AxisId axis) {
    return !placement.sharded_dim(axis) && placement.is_partial(axis) == placement.is_partial(unit[0]);
  };
  return std::ranges::all_of(unit, like_the_first);
}

Placement folded(Placement placement, const Unit& unit) {
  for (size_t i = 1; i < unit.size(); ++i) {
    placement.remove_partial(unit[i]);
    for (auto& dim : placement.dims) drop(dim, unit[i]);
  }
  return placement;
}

Placement unfolded(Placement placement, const Unit& unit) {
  if (const auto d = placement.sharded_dim(unit[0])) {
    auto& dim = placement.dims[*d];
    dim.insert(std::ranges::find(dim, unit[0]) + 1, unit.begin() + 1, unit.end());
  }
  for (size_t i = 1; i < unit.size() && placement.is_partial(unit[0]); ++i)
    placement.add_partial(unit[i], Reduction::sum);
  return placement;
}

std::vector<Unit> units_of(const Mesh& mesh) {
  std::vector<Unit> out;
  for (AxisId axis = 0; axis < mesh.axes.size(); ++axis) {
    const std::string& whole = mesh.axes[axis].part_of;
    if (whole.empty()) continue;
    if (axis > 0 && mesh.axes[axis - 1].part_of == whole)
      out.back().push_back(axis);
    else
      out.push_back({axis});
  }
  return out;
}

// Axes over which the ops of an accumulation run replicated, by output of the op.
using Avoided = std::map<ValueId, std::set<AxisId>>;

void drop(Placement& placement, const std::set<AxisId>& axes) {
  for (AxisId axis : axes) {
    placement.remove_partial(axis);
    for (auto& dim : placement.dims) drop(dim, axis);
  }
}

// Axes that two placements of one value use differently.
std::set<AxisId> disputed(const Placement& a, const Placement& b, const Mesh& mesh) {
  std::set<AxisId> out;
  for (AxisId axis = 0; axis < mesh.axes.size(); ++axis) {
    if (a.sharded_dim(axis) != b.sharded_dim(axis) || a.is_partial(axis) != b.is_partial(axis)) {
      out.insert(axis);
    }
  }
  for (size_t d = 0; d < a.dims.size(); ++d) {
    if (a.dims[d] != b.dims[d]) out.insert(a.dims[d].begin(), a.dims[d].end());
  }
  return out;
}

// The placement that a value made as `natural` is brought to: pinned axes go where their pin says, inside
// the axes that are there already; the others stay.
Placement pinned(const std::vector<Pin>& pins, const Placement& natural) {
  Placement out = natural;
  std::vector<std::vector<AxisId>> wished(natural.dims.size());
  for (const Pin& pin : pins) {
    out.remove_partial(pin.axis);
    for (size_t d = 0; d < out.dims.size(); ++d) {
      if (pin.dim != d) drop(out.dims[d], pin.axis);
    }
    if (pin.dim) wished[*pin.dim].push_back(pin.axis);
  }
  for (size_t d = 0; d < out.dims.size(); ++d) {
    std::vector<AxisId>& dim = out.dims[d];
    std::vector<AxisId> kept = dim;
    std::erase_if(kept, [&](AxisId axis) { return !std::ranges::count(wished[d], axis); });
    if (kept == wished[d]) continue;
    for (AxisId axis : wished[d]) {
      drop(dim, axis);
      dim.push_back(axis);
    }
  }
  return out;
}

// Why a value is moved along an axis; asked for each collective as it is inserted.
using Asked = std::function<Reason(AxisId)>;

class Propagator {
 public:
  Propagator(const Graph& source, const Mesh& mesh, const std::vector<AxisId>& first, Avoided& avoided)
      : source_(source),
        mesh_(mesh),
        first_(first),
        units_(units_of(mesh)),
        avoided_(avoided),
        natural_(source.values().size()),
        reasons_(source, mesh, out_, natural_) {
    out_.graph.real = source.real;
    out_.graph.pipeline = source.pipeline;
    out_.graph.pipeline_by = source.pipeline_by;
    out_.map.assign(source.values().size(), kNone);
  }

  // True if run() failed over an accumulation but has found axes to avoid: it is worth another try.
  bool retry() const { return retry_; }

  Result<PlacedGraph> run(const std::vector<ValueId>& replicated) {
    for (ValueId id = 0; id < source_.values().size(); ++id) {
      if (source_.value(id).producer == kNone) TENON_CHECK(add_leaf(id));
    }
    for (const Op& op : source_.ops()) TENON_CHECK(add_op(op));
    for (ValueId id : replicated) {
      const Placement wanted = Placement::replicated(source_.value(id).dims.size());
      const auto asked = [](AxisId) { return Reason{}; };
      TENON_TRY(out_.map[id], reshard(out_.map[id], wanted, Phase::step, 0, asked));
    }
    return std::move(out_);
  }

 private:
  Status add_leaf(ValueId id) {
    Value value = source_.value(id);
    value.placement.dims.resize(value.dims.size());
    value.placement = pinned(value.pins, value.placement);
    TENON_CHECK(divides(value));
    natural_[id] = value.placement;
    const auto made = static_cast<ValueId>(out_.graph.values().size());
    for (const Pin& pin : value.pins) {
      if (pin.dim) value.origins.push_back({pin.axis, made, pin.by});
    }
    out_.map[id] = out_.graph.add_value(std::move(value));
    return {};
  }

  Status divides(const Value& value) {
    auto local = local_dims(value.dims, value.placement, mesh_);
    if (local.ok()) return {};
    Error error = std::move(local).error();
    error.cause = value.name + ": " + error.cause;
    return error;
  }

  // Where the inputs of an op come from, as the rule is to see them.
  std::vector<Placement> given(const Op& op) const {
    std::vector<Placement> out;
    const auto avoided = avoided_.find(op.out[0]);
    for (size_t i = 0; i < op.in.size(); ++i) {
      out.push_back(out_.graph.value(out_.map[op.in[i]]).placement);
      // A gradient is used where its forward value was made: of S it is S, of R and P it is R, or P if that
      // may be summed late.
      if (!op.grad_in.empty() && op.grad_in[i] != kNone) {
        const Placement made = std::move(out.back());
        out.back() = natural_[op.grad_in[i]];
        out.back().partials.clear();
        for (AxisId axis : source_.value(op.grad_in[i]).late)
          if (made.is_partial(axis) && !out.back().sharded_dim(axis))
            out.back().add_partial(axis, Reduction::sum);
      }
      if (avoided != avoided_.end()) drop(out.back(), avoided->second);
    }
    // What an op overwrites stays where it is, and the other operands follow it: an update happens on the
    // parameter itself, never on a resharded copy.
    for (size_t i = 0; op.def->inplace_input > 0 && i < out.size(); ++i) {
      if (i == static_cast<size_t>(op.def->inplace_input)) continue;
      for (auto& dim : out[i].dims) dim.clear();
    }
    return out;
  }

  // What the outputs should be if the rule leaves a choice: as pinned, and a parameter's gradient as the
  // parameter.
  std::vector<std::optional<Placement>> wanted(const Op& op) const {
    std::vector<std::optional<Placement>> out;
    for (size_t k = 0; k < op.out.size(); ++k) {
      const Value& value = source_.value(op.out[k]);
      out.emplace_back();
      if (!value.pins.empty()) out.back() = pinned(value.pins, Placement::replicated(value.dims.size()));
      if (op.phase != Phase::weight_grad || op.grad_out.empty()) continue;
      const auto avoided = avoided_.find(op.out[0]);
      out.back() = natural_[op.grad_out[k]];
      if (avoided != avoided_.end()) drop(*out.back(), avoided->second);
    }
    return out;
  }

  Result<Typing> type(const Op& op, std::vector<Placement> inputs) const {
    if (op.def->absorbs) {
      Typing typing{std::move(inputs), {}};
      for (ValueId id : op.out) {
        typing.outputs.push_back(Placement::replicated(source_.value(id).dims.size()));
      }
      return typing;
    }
    TENON_TRY(const Rule* rule, rule_that_fits(op));
    return type_op(*rule, inputs, wanted(op), source_.staying(op));
  }

  Status add_op(const Op& op) {
    const std::vector<Placement> seen = given(op);
    TENON_TRY(Typing typing, type(op, seen));
    Op placed = op;
    for (size_t k = 0; k < op.out.size(); ++k) {
      Value value = source_.value(op.out[k]);
      natural_[op.out[k]] = value.placement = typing.outputs[k];
      value.origins = reasons_.origins_of(op, k, typing);
      placed.out[k] = out_.map[op.out[k]] = out_.graph.add_value(std::move(value));
    }
    const size_t before = out_.graph.reasons.size();
    for (size_t i = 0; i < op.in.size(); ++i) {
      const auto asked = [&](AxisId axis) {
        const auto avoided = avoided_.find(op.out[0]);
        const bool left_out = avoided != avoided_.end() && avoided->second.contains(axis);
        return reasons_.of_reader(op, i, seen, typing, axis, left_out);
      };
      TENON_TRY(placed.in[i], reshard(out_.map[op.in[i]], typing.inputs[i], op.phase, op.stage, asked));
    }
    for (ValueId id : placed.out) TENON_CHECK(divides(out_.graph.value(id)));
    TENON_CHECK(map_accumulators(op, placed));
    if (op.gradient_of != kNone) placed.gradient_of = op_map_[op.gradient_of];
    for (auto* ids : {&placed.grad_in, &placed.grad_out}) {
      for (ValueId& id : *ids) id = id == kNone ? kNone : out_.graph.made(out_.map[id]);
    }
    const std::vector<ValueId> made = placed.out;
    op_map_.push_back(out_.graph.append(std::move(placed)));
    for (size_t i = before; i < out_.graph.reasons.size(); ++i) out_.graph.reasons[i].reader = op_map_.back();
    for (size_t k = 0; k < op.out.size(); ++k) {
      const std::vector<Pin>& pins = source_.value(op.out[k]).pins;
      const Placement target = pinned(pins, typing.outputs[k]);
      const auto asked = [&](AxisId axis) { return reasons_.of_pin(made[k], target, axis); };
      TENON_TRY(out_.map[op.out[k]], reshard(made[k], target, op.phase, op.stage, asked));
    }
    return {};
  }

  Status map_accumulators(const Op& op, Op& placed) {
    for (size_t k = 0; k < op.acc.size(); ++k) {
      placed.acc[k] = out_.map[op.acc[k]];
      const Value& before = out_.graph.value(placed.acc[k]);
      const Value& after = out_.graph.value(placed.out[k]);
      if (before.placement == after.placement) continue;
      retry_ = avoid(op, disputed(before.placement, after.placement, mesh_));
      return Error{"P002",
                   std::string(op.def->kind) + " adds " + text(after.placement, after.dims, mesh_) + " to " +
                       text(before.placement, before.dims, mesh_),
                   after.name, "", TENON_E_RECIPE};
    }
    return {};
  }

  // Every op of the accumulation that `op` ends is to avoid the axes. False if that is nothing new.
  bool avoid(const Op& op, const std::set<AxisId>& axes) {
    bool fresh = false;
    for (const Op* at = &op; at != nullptr;) {
      std::set<AxisId>& known = avoided_[at->out[0]];
      for (AxisId axis : axes) fresh |= known.insert(axis).second;
      const OpId before = at->acc.empty() ? kNone : source_.value(at->acc[0]).producer;
      at = before == kNone ? nullptr : &source_.op(before);
    }
    return fresh;
  }

  // Happens on the stage that made the value; inputs and parameters are resharded on the stage of their
  // reader.
  Result<ValueId> reshard(ValueId id, const Placement& wanted, Phase phase, int stage, const Asked& asked) {
    const Placement from = out_.graph.value(id).placement;
    if (from == wanted) return id;
    for (const Partial& p : wanted.partials) {
      if (from.is_partial(p.axis)) continue;
      const Value& value = out_.graph.value(id);
      return Error{"P002",
                   "cannot turn " + text(from, value.dims, mesh_) + " into the partial " +
                       text(wanted, value.dims, mesh_),
                   value.name, "", TENON_E_RECIPE};
    }
    const OpId producer = out_.graph.value(id).producer;
    if (producer != kNone) stage = out_.graph.op(producer).stage;
    auto& known = cache_[{id, stage}];
    for (ValueId target : known) {
      if (out_.graph.value(target).placement == wanted) return target;
    }
    ValueId current = id;
    while (const auto step = next_step(out_.graph.value(current).placement, wanted)) {
      Reason reason = asked(step->axis);
      reason.value = id;
      reason.had = from;
      reason.wanted = wanted;
      reason.had_by = reasons_.origin_of(id, step->axis);
      if (reason.decider != kNone && reason.wanted_by.by.empty())
        reason.wanted_by = reasons_.origin_of(reason.decider, step->axis);
      TENON_TRY(current, add_collective(current, *step, phase, stage, std::move(reason)));
    }
    known.push_back(current);
    cache_[{current, stage}].push_back(id);  // whoever wants it back as it was has it
    return current;
  }

  // Parts of one axis that both placements use as one are moved together.
  std::optional<Step> next_step(Placement from, Placement to) const {
    std::vector<Unit> together;
    for (const Unit& unit : units_) {
      if (!used_as_one(from, unit) || !used_as_one(to, unit)) continue;
      from = folded(std::move(from), unit);
      to = folded(std::move(to), unit);
      together.push_back(unit);
    }
    std::optional<Step> step = tenon::next_step(from, to, first_);
    for (const Unit& unit : together) {
      if (!step) break;
      if (unit[0] == step->axis) step->axes = unit;
      step->after = unfolded(std::move(step->after), unit);
    }
    return step;
  }

  Result<ValueId> add_collective(ValueId from, const Step& step, Phase phase, int stage, Reason reason) {
    Value value = out_.graph.value(from);
    value.placement = step.after;
    value.name = out_.graph.value(out_.graph.made(from)).name + " as " + text(step.after, value.dims, mesh_);
    if (value.role != Role::grad) value.role = Role::act;
    value.pins.clear();
    std::erase_if(value.origins,
                  [&](const Origin& origin) { return std::ranges::count(step.axes, origin.axis) > 0; });
    const Origin& cut_by = reason.wanted_by.by.empty() ? reason.had_by : reason.wanted_by;
    if (step.after.sharded_dim(step.axis) && !cut_by.by.empty()) value.origins.push_back(cut_by);
    TENON_CHECK(divides(value));
    const int layer = value.layer;
    const ValueId to = out_.graph.add_value(std::move(value));
    Op op{find_op(name_of(step.kind)), {from}, {to}, {}, phase, layer, {}, step.axes, stage, {}, {}};
    op.reason = static_cast<uint32_t>(out_.graph.reasons.size());
    out_.graph.reasons.push_back(std::move(reason));
    out_.graph.append(std::move(op));
    return to;
  }

  const Graph& source_;
  const Mesh& mesh_;
  const std::vector<AxisId>& first_;
  const std::vector<Unit> units_;
  Avoided& avoided_;
  bool retry_ = false;
  PlacedGraph out_;
  std::vector<Placement> natural_;  // per source value, as its op made it
  std::vector<OpId> op_map_;        // per source op
  const Reasons reasons_;
  std::map<std::pair<ValueId, int>, std::vector<ValueId>> cache_;  // (value, stage): its resharded forms
};

Error type_error(const Graph& graph, const Mesh& mesh, const Op& op, ValueId id, const std::string& allowed) {
  const Value& value = graph.value(id);
  return Error{"V001",
               std::string(op.def->kind) + ": '" + value.name + "' is " +
                   text(value.placement, value.dims, mesh) + ", allowed: " + allowed,
               value.name, "", TENON_E_INTERNAL};
}

// A collective must move one axis, or the parts of one, the way its kind says.
Status check_collective(const Graph& graph, const Mesh& mesh, const Op& op) {
  const Placement& from = graph.value(op.in[0]).placement;
  const Placement& to = graph.value(op.out[0]).placement;
  const auto known = [&](AxisId axis) {
    return axis < mesh.axes.size() &&
           (op.axes.size() == 1 ||
            (!mesh.axes[axis].part_of.empty() && mesh.axes[axis].part_of == mesh.axes[op.axes[0]].part_of));
  };
  if (op.axes.empty() || !std::ranges::all_of(op.axes, known) || !std::ranges::is_sorted(op.axes)) {
    return Error{"V001",
                 std::string(op.def->kind) + " runs over " + std::to_string(op.axes.size()) +
                     " axes, allowed: one of the mesh, or parts of one",
                 graph.value(op.out[0]).name, "", TENON_E_INTERNAL};
  }
  Placement expected = from;
  const auto source = from.sharded_dim(op.axes[0]), target = to.sharded_dim(op.axes[0]);
  const auto ends_with_them = [&](const std::vector<AxisId>& dim) {
    return dim.size() >= op.axes.size() && std::equal(op.axes.rbegin(), op.axes.rend(), dim.rbegin());
  };
  const auto each = [&](auto is) { return std::ranges::all_of(op.axes, is); };
  const bool partial = each([&](AxisId axis) { return from.is_partial(axis); });
  const bool whole = each([&](AxisId axis) { return !from.sharded_dim(axis) && !from.is_partial(axis); });
  const bool innermost = source && ends_with_them(from.dims[*source]);
  bool legal = false;
  switch (reshard_of(*op.def)) {
    case TransferKind::all_reduce: legal = partial && !target; break;
    case TransferKind::reduce_scatter: legal = partial && target; break;
    case TransferKind::all_gather: legal = source && !target && innermost; break;
    case TransferKind::all_to_all: legal = source && target && *source != *target && innermost; break;
    case TransferKind::slice: legal = whole && target; break;
    default: break;
  }
  for (AxisId axis : op.axes) {
    expected.remove_partial(axis);
    if (source) drop(expected.dims[*source], axis);
    if (target) expected.dims[*target].push_back(axis);
  }
  if (!legal) {
    std::string names;
    for (AxisId axis : op.axes) names += (names.empty() ? "" : ",") + mesh.axes[axis].name;
    return type_error(graph, mesh, op, op.in[0],
                      "what " + std::string(op.def->kind) + " over " + names + " can turn into " +
                          text(to, graph.value(op.out[0]).dims, mesh));
  }
  if (!(expected == to))
    return type_error(graph, mesh, op, op.out[0], text(expected, graph.value(op.out[0]).dims, mesh));
  return {};
}

// Each dim has its list of axes, every axis of the mesh occurs at most once, and what is sharded divides.
Status check_placement(const Graph& graph, const Mesh& mesh, const Op& op, ValueId id) {
  const Value& value = graph.value(id);
  std::vector<AxisId> axes;
  for (const auto& dim : value.placement.dims) axes.insert(axes.end(), dim.begin(), dim.end());
  for (const Partial& partial : value.placement.partials) axes.push_back(partial.axis);
  std::sort(axes.begin(), axes.end());
  const bool known = axes.empty() || axes.back() < mesh.axes.size();
  const bool once = std::adjacent_find(axes.begin(), axes.end()) == axes.end();
  if (value.placement.dims.size() == value.dims.size() && known && once &&
      local_dims(value.dims, value.placement, mesh).ok()) {
    return {};
  }
  return Error{"V001",
               std::string(op.def->kind) + ": '" + value.name + "' has no placement on " + mesh.text() +
                   " that fits " + text(value.dims),
               value.name, "", TENON_E_INTERNAL};
}

// An op that reduces its inputs itself takes any partial sum; nothing of that is left in its outputs.
Status check_absorbing(const Graph& graph, const Mesh& mesh, const Op& op) {
  for (ValueId id : op.in) {
    for (const Partial& partial : graph.value(id).placement.partials) {
      if (partial.reduction != Reduction::sum) return type_error(graph, mesh, op, id, "partial sums");
    }
  }
  for (ValueId id : op.out) {
    if (!graph.value(id).placement.is_replicated()) return type_error(graph, mesh, op, id, "R");
  }
  return {};
}

Status check_op(const Graph& graph, const Mesh& mesh, const Op& op) {
  for (ValueId id : op.in) TENON_CHECK(check_placement(graph, mesh, op, id));
  for (ValueId id : op.out) TENON_CHECK(check_placement(graph, mesh, op, id));
  if (reshard_of(*op.def) != TransferKind::none) return check_collective(graph, mesh, op);
  if (op.def->absorbs) return check_absorbing(graph, mesh, op);
  TENON_TRY(const Rule* rule, rule_that_fits(op));
  std::vector<Placement> given;
  for (ValueId id : op.in) given.push_back(graph.value(id).placement);
  std::vector<std::optional<Placement>> found;
  for (ValueId id : op.out) found.push_back(graph.value(id).placement);
  const Typing typing = type_op(*rule, given, found);
  for (size_t i = 0; i < op.in.size(); ++i) {
    if (typing.inputs[i] == given[i]) continue;
    return type_error(graph, mesh, op, op.in[i], text(typing.inputs[i], graph.value(op.in[i]).dims, mesh));
  }
  for (size_t k = 0; k < op.out.size(); ++k) {
    if (typing.outputs[k] == *found[k]) continue;
    return type_error(graph, mesh, op, op.out[k], text(typing.outputs[k], graph.value(op.out[k]).dims, mesh));
  }
  for (size_t k = 0; k < op.acc.size(); ++k) {
    if (graph.value(op.acc[k]).placement == *found[k]) continue;
    return type_error(graph, mesh, op, op.acc[k], text(*found[k], graph.value(op.acc[k]).dims, mesh));
  }
  return {};
}

}  // namespace

Result<PlacedGraph> propagate(const Graph& source, const Mesh& mesh, const std::vector<ValueId>& replicated,
                              const std::vector<AxisId>& first) {
  Avoided avoided;  // grows with every round, and is bounded by ops times axes
  while (true) {
    Propagator propagator(source, mesh, first, avoided);
    auto placed = propagator.run(replicated);
    if (placed.ok() || !propagator.retry()) return placed;
  }
}

Status check_types(const Graph& placed, const Mesh& mesh) {
  for (const Op& op : placed.ops()) TENON_CHECK(check_op(placed, mesh, op));
  return {};
}

}  // namespace tenon
