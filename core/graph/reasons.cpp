#include "graph/reasons.h"

#include <algorithm>

#include "graph/ops.h"

namespace tenon {
namespace {

// Whether two placements use an axis alike.
bool agree(const Placement& a, const Placement& b, AxisId axis) {
  return a.sharded_dim(axis) == b.sharded_dim(axis) && a.is_partial(axis) == b.is_partial(axis);
}

bool uses(const Placement& placement, AxisId axis) {
  return placement.sharded_dim(axis).has_value() || placement.is_partial(axis);
}

}  // namespace

Origin Reasons::origin_of(ValueId id, AxisId axis) const {
  const Value& value = placed_.graph.value(id);
  const auto cut = std::ranges::find(value.origins, axis, &Origin::axis);
  if (cut != value.origins.end()) return *cut;
  const auto pin = std::ranges::find(value.pins, axis, &Pin::axis);
  return pin == value.pins.end() ? Origin{axis, kNone, ""} : Origin{axis, id, pin->by};
}

// Where the cut of result k along an axis may come from, the likeliest first: its pin, the parameter that it
// is the gradient of, what the op reads without a reshard, weights before others, and the forward values.
std::vector<Origin> Reasons::sources_of(const Op& op, size_t k, const Typing& typing, AxisId axis) const {
  std::vector<Origin> out;
  const auto& pins = source_.value(op.out[k]).pins;
  const auto pin = std::ranges::find(pins, axis, &Pin::axis);
  if (pin != pins.end() && pin->dim == typing.outputs[k].sharded_dim(axis))
    out.push_back({axis, static_cast<ValueId>(placed_.graph.values().size()), pin->by});
  if (op.phase == Phase::weight_grad && k < op.grad_out.size() &&
      agree(natural_[op.grad_out[k]], typing.outputs[k], axis))
    out.push_back(origin_of(placed_.map[op.grad_out[k]], axis));
  for (const bool weights : {true, false}) {
    for (size_t i = 0; i < op.in.size(); ++i) {
      if (weights == (source_.value(op.in[i]).role == Role::param) && uses(typing.inputs[i], axis) &&
          agree(placement_of(op.in[i]), typing.inputs[i], axis))
        out.push_back(origin_of(placed_.map[op.in[i]], axis));
    }
  }
  for (const auto* ids : {&op.grad_in, &op.grad_out}) {
    for (ValueId id : *ids)
      if (id != kNone) out.push_back(origin_of(placed_.map[id], axis));
  }
  return out;
}

std::vector<Origin> Reasons::origins_of(const Op& op, size_t k, const Typing& typing) const {
  std::vector<Origin> out;
  for (AxisId axis = 0; axis < mesh_.axes.size(); ++axis) {
    if (!uses(typing.outputs[k], axis)) continue;
    const std::vector<Origin> sources = sources_of(op, k, typing, axis);
    const auto it = std::ranges::find_if(sources, [](const Origin& from) { return !from.by.empty(); });
    if (it != sources.end()) out.push_back(*it);
  }
  return out;
}

Reason Reasons::of_reader(const Op& op, size_t i, const Placement& seen, const Typing& typing, AxisId axis,
                          bool left_out) const {
  Reason out;
  if (agree(placement_of(op.in[i]), seen, axis)) {
    blame_rule(op, i, seen, typing, axis, out);
  } else if (left_out) {
    out.because = Reason::Because::accumulation;
    out.decider = placed_.map[op.out[0]];
  } else if (i < op.grad_in.size() && op.grad_in[i] != kNone) {
    out.because = Reason::Because::as_forward;
    out.decider = placed_.map[op.grad_in[i]];
  } else {
    out.because = Reason::Because::in_place;
    out.decider = placed_.map[op.in[static_cast<size_t>(op.def->inplace_input)]];
  }
  return out;
}

void Reasons::blame_rule(const Op& op, size_t i, const Placement& seen, const Typing& typing, AxisId axis,
                         Reason& out) const {
  const auto dim = seen.sharded_dim(axis);
  const auto rule = rule_of(*op.def, source_.ranks_of(op.in));
  if (dim && rule.ok()) {
    const Rule::Factor& factor = rule->factors[static_cast<size_t>(rule->inputs[i][*dim])];
    if (factor.kind == Rule::Kind::whole) {
      out.because = Reason::Because::whole;
      out.factor = factor.name;
      return;
    }
  }
  out.decider = decider_of(op, i, typing, axis);
  out.because = out.decider == kNone ? Reason::Because::no_partial : Reason::Because::operand;
}

// The operand or result whose cut along an axis another operand of the op follows; weights first. None: the
// op leaves the axis out.
ValueId Reasons::decider_of(const Op& op, size_t i, const Typing& typing, AxisId axis) const {
  for (size_t j = 0; j < op.in.size(); ++j) {
    if (j != i && typing.inputs[j].sharded_dim(axis) && placement_of(op.in[j]).sharded_dim(axis))
      return placed_.map[op.in[j]];
  }
  for (size_t k = 0; k < op.out.size(); ++k) {
    if (!typing.outputs[k].sharded_dim(axis)) continue;
    return placed_.map[k < op.grad_out.size() && op.phase == Phase::weight_grad ? op.grad_out[k] : op.out[k]];
  }
  return kNone;
}

Reason Reasons::of_pin(ValueId id, const Placement& target, AxisId axis) const {
  Reason out;
  const Value& value = placed_.graph.value(id);
  out.because = Reason::Because::pin;
  out.reader = value.producer;
  out.decider = id;
  auto pin = std::ranges::find(value.pins, axis, &Pin::axis);
  if (pin == value.pins.end()) {
    const auto dim = target.sharded_dim(axis);
    pin = std::ranges::find_if(value.pins, [&](const Pin& other) { return other.dim == dim; });
  }
  if (pin != value.pins.end()) out.wanted_by = {axis, id, pin->by};
  return out;
}

}  // namespace tenon
