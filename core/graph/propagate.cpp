#include "graph/propagate.h"

#include <algorithm>
#include <functional>
#include <set>

#include "graph/crossing.h"
#include "graph/ops.h"
#include "graph/reasons.h"
#include "graph/route.h"

namespace tenon {
namespace {

Result<const Rule*> rule_that_fits(const Op& op) {
  if (op.rule != nullptr) return op.rule.get();
  return Error{"G001", "the operands do not fit the rule '" + op.def->rule + "'", "", "", TENON_E_ARGUMENT};
}

void drop(std::vector<AxisId>& axes, AxisId axis) { std::erase(axes, axis); }

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
  if (pins.empty()) return out;
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

// Whether each of a value's dims can be cut as its placement says.
bool divides(const Value& value, const Mesh& mesh) {
  for (size_t d = 0; d < value.dims.size(); ++d) {
    if (value.dims[d].size % mesh.size(value.placement.dims[d]) != 0) return false;
  }
  return true;
}

// Why a value is moved along an axis; asked for each collective as it is inserted.
using Asked = std::function<Reason(AxisId)>;

class Propagator {
 public:
  Propagator(const Graph& source, const Mesh& mesh, const std::vector<AxisId>& first,
             const CrossingForms& crossing, Avoided& avoided)
      : source_(source),
        mesh_(mesh),
        routes_(mesh, first),
        crossing_(crossing),
        avoided_(avoided),
        natural_(source.values().size()),
        reasons_(source, mesh, out_, natural_) {
    out_.graph.real = source.real;
    out_.graph.pipeline = source.pipeline;
    out_.graph.pipeline_by = source.pipeline_by;
    out_.map.assign(source.values().size(), kNone);
  }

  // The forms in which values should go to other stages; of the others it is the one that is read there.
  CrossingForms crossing_forms() const {
    CrossingForms out;
    for (const auto& [id, crossing] : read_elsewhere_) {
      Placement form = crossing_form(routes_, mesh_, crossing);
      if (crossing.read.size() > 1 || form != crossing.read[0]) out.emplace(id, std::move(form));
    }
    return out;
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
      TENON_TRY(out_.map[id], reshard(out_.map[id], wanted, Phase::step, home(out_.map[id], 0), asked));
    }
    return std::move(out_);
  }

 private:
  Status add_leaf(ValueId id) {
    Value value = source_.value(id);
    value.placement.dims.resize(value.dims.size());
    value.placement = pinned(value.pins, value.placement);
    TENON_CHECK(divides(value, value.role == Role::input ? "/context" : value.pointer));
    natural_[id] = value.placement;
    const auto made = static_cast<ValueId>(out_.graph.values().size());
    for (const Pin& pin : value.pins) {
      if (pin.dim) value.origins.push_back({pin.axis, made, pin.by});
    }
    out_.map[id] = out_.graph.add_value(std::move(value));
    return {};
  }

  // `pointer`: where the recipe has what makes it.
  Status divides(const Value& value, const std::string& pointer) {
    if (tenon::divides(value, mesh_)) return {};
    Error error = local_dims(value.dims, value.placement, mesh_).error();
    error.cause = value.name + ": " + error.cause;
    error.place = pointer;
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
    reading_ = op.pointer;
    for (size_t i = 0; i < op.in.size(); ++i) {
      const auto asked = [&](AxisId axis) {
        const auto avoided = avoided_.find(op.out[0]);
        const bool left_out = avoided != avoided_.end() && avoided->second.contains(axis);
        return reasons_.of_reader(op, i, seen, typing, axis, left_out);
      };
      TENON_TRY(placed.in[i], bring(op, i, typing.inputs[i], std::cref(asked)));
    }
    for (ValueId id : placed.out) TENON_CHECK(divides(out_.graph.value(id), op.pointer));
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
      if (pins.empty()) continue;
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

  // The stage that made a value; what none made (inputs, parameters) is on each.
  int home(ValueId id, int reader) const {
    const OpId producer = out_.graph.value(id).producer;
    return producer == kNone ? reader : out_.graph.op(producer).stage;
  }

  // An operand, as its reader wants it. Of a value that other stages read, one form goes there, and each
  // makes its own of it.
  Result<ValueId> bring(const Op& op, size_t i, const Placement& wanted, const Asked& asked) {
    const ValueId id = out_.map[op.in[i]];
    const int from = home(id, op.stage);
    if (op.phase == Phase::step || from == op.stage) return reshard(id, wanted, op.phase, from, asked);
    Crossing& crossing = read_elsewhere_[op.in[i]];
    crossing.made = out_.graph.value(id).placement;
    if (std::ranges::count(crossing.read, wanted) == 0) crossing.read.push_back(wanted);
    const auto known = crossing_.find(op.in[i]);
    const Phase phase = out_.graph.op(out_.graph.value(id).producer).phase;
    TENON_TRY(const ValueId sent,
              reshard(id, known == crossing_.end() ? wanted : known->second, phase, from, asked));
    return reshard(sent, wanted, op.phase, op.stage, asked);
  }

  Result<ValueId> reshard(ValueId id, const Placement& wanted, Phase phase, int stage, const Asked& asked) {
    if (out_.graph.value(id).placement == wanted) return id;
    const Placement from = out_.graph.value(id).placement;
    for (const Partial& p : wanted.partials) {
      if (from.is_partial(p.axis)) continue;
      const Value& value = out_.graph.value(id);
      return Error{"P002",
                   "cannot turn " + text(from, value.dims, mesh_) + " into the partial " +
                       text(wanted, value.dims, mesh_),
                   value.name, "", TENON_E_RECIPE};
    }
    auto& known = cache_[{id, stage}];
    for (ValueId target : known) {
      if (out_.graph.value(target).placement == wanted) return target;
    }
    ValueId current = id;
    while (const auto step = routes_.next(out_.graph.value(current).placement, wanted)) {
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
    TENON_CHECK(divides(value, reading_));
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
  const Routes routes_;
  const CrossingForms& crossing_;
  std::map<ValueId, Crossing> read_elsewhere_;  // source values that other stages read
  Avoided& avoided_;
  bool retry_ = false;
  PlacedGraph out_;
  std::vector<Placement> natural_;  // per source value, as its op made it
  std::string reading_;             // where the recipe has the op that is being placed
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
    return type_error(graph, mesh, op, op.in[0],
                      "what " + std::string(op.def->kind) + " over " + mesh.names(op.axes) +
                          " can turn into " + text(to, graph.value(op.out[0]).dims, mesh));
  }
  if (!(expected == to))
    return type_error(graph, mesh, op, op.out[0], text(expected, graph.value(op.out[0]).dims, mesh));
  return {};
}

// Each dim has its list of axes, every axis of the mesh occurs at most once, and what is sharded divides.
Status check_placement(const Graph& graph, const Mesh& mesh, const Op& op, ValueId id) {
  const Value& value = graph.value(id);
  if (value.placement.is_replicated() && value.placement.dims.size() == value.dims.size()) return {};
  std::vector<AxisId> axes;
  for (const auto& dim : value.placement.dims) axes.insert(axes.end(), dim.begin(), dim.end());
  for (const Partial& partial : value.placement.partials) axes.push_back(partial.axis);
  std::sort(axes.begin(), axes.end());
  const bool known = axes.empty() || axes.back() < mesh.axes.size();
  const bool once = std::adjacent_find(axes.begin(), axes.end()) == axes.end();
  if (value.placement.dims.size() == value.dims.size() && known && once && divides(value, mesh)) {
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

// Every rule makes whole results of whole operands.
bool all_whole(const Graph& graph, const Op& op) {
  const auto whole = [&](ValueId id) { return graph.value(id).placement.is_replicated(); };
  return op.rule != nullptr && std::ranges::all_of(op.in, whole) && std::ranges::all_of(op.out, whole) &&
         std::ranges::all_of(op.acc, whole);
}

Status check_op(const Graph& graph, const Mesh& mesh, const Op& op) {
  for (ValueId id : op.in) TENON_CHECK(check_placement(graph, mesh, op, id));
  for (ValueId id : op.out) TENON_CHECK(check_placement(graph, mesh, op, id));
  if (reshard_of(*op.def) != TransferKind::none) return check_collective(graph, mesh, op);
  if (op.def->absorbs) return check_absorbing(graph, mesh, op);
  if (all_whole(graph, op)) return {};
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
  CrossingForms crossing;
  while (true) {
    Propagator propagator(source, mesh, first, crossing, avoided);
    auto placed = propagator.run(replicated);
    if (!placed.ok() && propagator.retry()) continue;
    if (!placed.ok()) return placed;
    // Who reads what does not depend on the forms, so the second round finds the same.
    CrossingForms forms = propagator.crossing_forms();
    if (forms == crossing) return placed;
    crossing = std::move(forms);
  }
}

Status check_types(const Graph& placed, const Mesh& mesh) {
  for (const Op& op : placed.ops()) TENON_CHECK(check_op(placed, mesh, op));
  return {};
}

}  // namespace tenon
