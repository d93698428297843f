#include "graph/propagate.h"

#include <algorithm>

#include "graph/ops.h"

namespace tenon {
namespace {

std::vector<size_t> ranks_of(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<size_t> out;
  for (ValueId id : ids) out.push_back(graph.value(id).dims.size());
  return out;
}

// One step of a reshard: the collective and the placement behind it.
struct Step {
  const char* kind;
  AxisId axis;
  Placement after;
};

void drop(std::vector<AxisId>& axes, AxisId axis) { std::erase(axes, axis); }

// The next collective on the way from `from` to `to`, or nothing when they are equal. Gathers come
// first (innermost axis first), then reductions and moves, then slices (outermost axis first).
std::optional<Step> next_step(const Placement& from, const Placement& to) {
  for (size_t d = 0; d < from.dims.size(); ++d) {
    for (size_t k = from.dims[d].size(); k-- > 0;) {
      const AxisId axis = from.dims[d][k];
      const bool in_place = k < to.dims[d].size() && to.dims[d][k] == axis;
      if (in_place) continue;
      Step step{"all_gather", axis, from};
      drop(step.after.dims[d], axis);
      const auto target = to.sharded_dim(axis);
      if (target && *target != d && from.dims[d].size() == 1) {
        step.kind = "all_to_all";
        step.after.dims[*target].push_back(axis);
      }
      return step;
    }
  }
  for (const Partial& partial : from.partials) {
    if (to.is_partial(partial.axis)) continue;
    Step step{"all_reduce", partial.axis, from};
    step.after.remove_partial(partial.axis);
    if (const auto target = to.sharded_dim(partial.axis)) {
      step.kind = "reduce_scatter";
      step.after.dims[*target].push_back(partial.axis);
    }
    return step;
  }
  for (size_t d = 0; d < to.dims.size(); ++d) {
    const size_t have = from.dims[d].size();
    if (have >= to.dims[d].size()) continue;
    Step step{"slice", to.dims[d][have], from};
    step.after.dims[d].push_back(step.axis);
    return step;
  }
  return std::nullopt;
}

class Propagator {
 public:
  Propagator(const Graph& source, const Mesh& mesh) : source_(source), mesh_(mesh) {
    out_.graph.real = source.real;
    out_.map.assign(source.values().size(), kNone);
  }

  Result<PlacedGraph> run(const std::vector<ValueId>& replicated) {
    for (ValueId id = 0; id < source_.values().size(); ++id) {
      if (source_.value(id).producer == kNone) TENON_CHECK(add_leaf(id));
    }
    for (const Op& op : source_.ops()) TENON_CHECK(add_op(op));
    for (ValueId id : replicated) {
      const Placement wanted = Placement::replicated(source_.value(id).dims.size());
      TENON_TRY(out_.map[id], reshard(out_.map[id], wanted, Phase::step));
    }
    return std::move(out_);
  }

 private:
  Status add_leaf(ValueId id) {
    Value value = source_.value(id);
    value.placement = value.pinned.value_or(Placement::replicated(value.dims.size()));
    TENON_CHECK(divides(value));
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

  Status add_op(const Op& op) {
    TENON_TRY(const Rule rule, rule_of(*op.def, ranks_of(source_, op.in)));
    std::vector<Placement> given;
    for (ValueId id : op.in) given.push_back(out_.graph.value(out_.map[id]).placement);
    std::vector<std::optional<Placement>> wanted;
    for (ValueId id : op.out) wanted.push_back(source_.value(id).pinned);
    Typing typing = type_op(rule, given, wanted);
    Op placed = op;
    for (size_t i = 0; i < op.in.size(); ++i) {
      TENON_TRY(placed.in[i], reshard(out_.map[op.in[i]], typing.inputs[i], op.phase));
    }
    for (size_t k = 0; k < op.out.size(); ++k) {
      Value value = source_.value(op.out[k]);
      value.placement = typing.outputs[k];
      TENON_CHECK(divides(value));
      placed.out[k] = out_.graph.add_value(std::move(value));
      out_.map[op.out[k]] = placed.out[k];
    }
    TENON_CHECK(map_accumulators(op, placed));
    out_.graph.append(placed);
    for (size_t k = 0; k < op.out.size(); ++k) {
      if (!wanted[k]) continue;
      TENON_TRY(out_.map[op.out[k]], reshard(placed.out[k], *wanted[k], op.phase));
    }
    return {};
  }

  Status map_accumulators(const Op& op, Op& placed) {
    for (size_t k = 0; k < op.acc.size(); ++k) {
      placed.acc[k] = out_.map[op.acc[k]];
      const Value& before = out_.graph.value(placed.acc[k]);
      const Value& after = out_.graph.value(placed.out[k]);
      if (before.placement == after.placement) continue;
      return Error{"P002", std::string(op.def->kind) + " adds " + text(after.placement, after.dims, mesh_) + " to " +
                       text(before.placement, before.dims, mesh_), after.name, "", TENON_E_RECIPE};
    }
    return {};
  }

  Result<ValueId> reshard(ValueId id, const Placement& wanted, Phase phase) {
    const Placement& from = out_.graph.value(id).placement;
    if (from == wanted) return id;
    for (const Partial& p : wanted.partials) {
      if (from.is_partial(p.axis)) continue;
      const Value& value = out_.graph.value(id);
      return Error{"P002", "cannot turn " + text(from, value.dims, mesh_) + " into the partial " +
                       text(wanted, value.dims, mesh_), value.name, "", TENON_E_RECIPE};
    }
    for (const auto& [source, target] : cache_) {
      if (source == id && out_.graph.value(target).placement == wanted) return target;
    }
    ValueId current = id;
    while (const auto step = next_step(out_.graph.value(current).placement, wanted)) {
      TENON_TRY(current, add_collective(current, *step, phase));
    }
    cache_.emplace_back(id, current);
    return current;
  }

  Result<ValueId> add_collective(ValueId from, const Step& step, Phase phase) {
    Value value = out_.graph.value(from);
    value.name += std::string("|") + step.kind;
    value.placement = step.after;
    if (value.role != Role::grad) value.role = Role::act;
    value.pinned.reset();
    TENON_CHECK(divides(value));
    const int layer = value.layer;
    const ValueId to = out_.graph.add_value(std::move(value));
    out_.graph.append(Op{find_op(step.kind), {from}, {to}, {}, phase, layer, {}, {step.axis}});
    return to;
  }

  const Graph& source_;
  const Mesh& mesh_;
  PlacedGraph out_;
  std::vector<std::pair<ValueId, ValueId>> cache_;
};

Error type_error(const Graph& graph, const Mesh& mesh, const Op& op, ValueId id, const std::string& allowed) {
  const Value& value = graph.value(id);
  return Error{"V001", std::string(op.def->kind) + ": '" + value.name + "' is " +
                   text(value.placement, value.dims, mesh) + ", allowed: " + allowed, value.name, "", TENON_E_INTERNAL};
}

// A collective must move exactly one axis the way its kind says.
Status check_collective(const Graph& graph, const Mesh& mesh, const Op& op) {
  const Placement& from = graph.value(op.in[0]).placement;
  const Placement& to = graph.value(op.out[0]).placement;
  const AxisId axis = op.axes.at(0);
  Placement expected = from;
  const auto source = from.sharded_dim(axis), target = to.sharded_dim(axis);
  bool legal = false;
  switch (collective_of(*op.def)) {
    case Collective::all_reduce: legal = from.is_partial(axis) && !target; break;
    case Collective::reduce_scatter: legal = from.is_partial(axis) && target; break;
    case Collective::all_gather: legal = source && !target && from.dims[*source].back() == axis; break;
    case Collective::all_to_all: legal = source && target && *source != *target; break;
    case Collective::slice: legal = !source && !from.is_partial(axis) && target; break;
    case Collective::none: break;
  }
  expected.remove_partial(axis);
  if (source) drop(expected.dims[*source], axis);
  if (target) expected.dims[*target].push_back(axis);
  if (!legal || !(expected == to)) return type_error(graph, mesh, op, op.out[0], text(expected, graph.value(op.out[0]).dims, mesh));
  return {};
}

Status check_op(const Graph& graph, const Mesh& mesh, const Op& op) {
  if (collective_of(*op.def) != Collective::none) return check_collective(graph, mesh, op);
  TENON_TRY(const Rule rule, rule_of(*op.def, ranks_of(graph, op.in)));
  std::vector<Placement> given;
  for (ValueId id : op.in) given.push_back(graph.value(id).placement);
  std::vector<std::optional<Placement>> found;
  for (ValueId id : op.out) found.push_back(graph.value(id).placement);
  const Typing typing = type_op(rule, given, found);
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

Result<PlacedGraph> propagate(const Graph& source, const Mesh& mesh, const std::vector<ValueId>& replicated) {
  return Propagator(source, mesh).run(replicated);
}

Status check_types(const Graph& placed, const Mesh& mesh) {
  for (const Op& op : placed.ops()) TENON_CHECK(check_op(placed, mesh, op));
  return {};
}

}  // namespace tenon
