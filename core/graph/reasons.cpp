#include "graph/reasons.h"

#include <algorithm>

#include "graph/ops.h"

namespace tenon {
namespace {

// Whether two placements use an axis alike.
bool agree(const Placement& a, const Placement& b, AxisId axis) {
  return a.sharded_dim(axis) == b.sharded_dim(axis) && a.is_partial(axis) == b.is_partial(axis);
}

// Whether an axis, and what is around and inside of it, cuts two placements of a value alike.
bool same_cut(const Placement& a, const Placement& b, AxisId axis) {
  const auto dim = a.sharded_dim(axis);
  return agree(a, b, axis) && (!dim || a.dims[*dim] == b.dims[*dim]);
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
    out.push_back(origin_of(made(op.grad_out[k]), axis));
  for (const bool weights : {true, false}) {
    for (size_t i = 0; i < op.in.size(); ++i) {
      if (weights == (source_.value(op.in[i]).role == Role::param) && uses(typing.inputs[i], axis) &&
          agree(placement_of(op.in[i]), typing.inputs[i], axis))
        out.push_back(origin_of(placed_.map[op.in[i]], axis));
    }
  }
  for (const auto* ids : {&op.grad_in, &op.grad_out}) {
    for (ValueId id : *ids)
      if (id != kNone) out.push_back(origin_of(made(id), axis));
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

namespace {

// An op where its operands meet: its rule, the operands as the op sees them, and what it makes of these.
// Knows which of them had its way, as type_op() decides that. A part is an operand, or, counted on, a result.
class Meeting {
 public:
  Meeting(const Rule& rule, const std::vector<Placement>& seen, const Typing& typing)
      : rule_(rule), seen_(seen), typing_(typing) {}

  // The part after which operand i is cut along an axis, or is not cut any more.
  std::optional<size_t> leader(size_t i, AxisId axis, const std::vector<bool>& stays) const {
    const auto wanted = typing_.inputs[i].sharded_dim(axis), seen = seen_[i].sharded_dim(axis);
    if (!wanted) return giver(factor_cut(axis).value_or(rule_.inputs[i][seen.value()]), stays);
    const auto out = giver(rule_.inputs[i][*wanted], stays);
    if (out != i) return out;
    for (AxisId lost : seen_[i].dims[*wanted]) {  // it has its own cut, without an axis around this one
      if (const auto factor = factor_cut(lost); typing_.inputs[i].sharded_dim(lost) != wanted && factor)
        return giver(*factor, stays);
    }
    return std::nullopt;
  }

  // Why no partial sum of operand i is taken: another operand as that is, or, if none, the rule.
  std::optional<size_t> spoiler(size_t i, AxisId axis) const {
    for (size_t j = 0; j < seen_.size(); ++j) {
      if (seen_[j].sharded_dim(axis)) return j;
    }
    const auto has = [](const std::vector<int>& set, size_t j) {
      return std::ranges::count(set, static_cast<int>(j)) > 0;
    };
    const auto set = std::ranges::find_if(rule_.linear, [&](const auto& one) { return has(one, i); });
    if (set == rule_.linear.end()) return std::nullopt;
    for (size_t j = 0; j < seen_.size(); ++j) {
      if (seen_[j].is_partial(axis) != has(*set, j)) return j;
    }
    return std::nullopt;
  }

 private:
  // The part that gave a factor its axes: operands that stay come first, results last.
  std::optional<size_t> giver(int factor, const std::vector<bool>& stays) const {
    for (const bool first : {true, false}) {
      for (size_t j = 0; j < seen_.size(); ++j) {
        if (stays[j] == first && gave(rule_.inputs[j], seen_[j], typing_.inputs[j], factor)) return j;
      }
    }
    for (size_t k = 0; k < typing_.outputs.size(); ++k) {
      if (gave(rule_.outputs[k], typing_.outputs[k], typing_.outputs[k], factor)) return seen_.size() + k;
    }
    return std::nullopt;
  }

  static bool gave(const std::vector<int>& factors, const Placement& seen, const Placement& typed,
                   int factor) {
    const auto dim = static_cast<size_t>(std::ranges::find(factors, factor) - factors.begin());
    return dim < factors.size() &&
           std::ranges::find_first_of(typed.dims[dim], seen.dims[dim]) != typed.dims[dim].end();
  }

  // The factor that an axis cuts.
  std::optional<int> factor_cut(AxisId axis) const {
    for (size_t j = 0; j < seen_.size(); ++j) {
      if (const auto dim = typing_.inputs[j].sharded_dim(axis)) return rule_.inputs[j][*dim];
    }
    return std::nullopt;
  }

  const Rule& rule_;
  const std::vector<Placement>& seen_;
  const Typing& typing_;
};

}  // namespace

Reason Reasons::of_reader(const Op& op, size_t i, const std::vector<Placement>& seen, const Typing& typing,
                          AxisId axis, bool left_out) const {
  Reason out;
  if (!same_cut(typing.inputs[i], seen[i], axis) || same_cut(placement_of(op.in[i]), seen[i], axis)) {
    blame_rule(op, i, seen, typing, axis, out);
  } else if (left_out) {
    out.because = Reason::Because::accumulation;
    out.decider = placed_.map[op.out[0]];
  } else if (i < op.grad_in.size() && op.grad_in[i] != kNone) {
    out.because = Reason::Because::as_forward;
    out.decider = made(op.grad_in[i]);
  } else {
    out.because = Reason::Because::in_place;
    out.decider = placed_.map[op.in[static_cast<size_t>(op.def->inplace_input)]];
  }
  return out;
}

void Reasons::blame_rule(const Op& op, size_t i, const std::vector<Placement>& seen, const Typing& typing,
                         AxisId axis, Reason& out) const {
  const Rule& rule = *op.rule;
  const bool summed = seen[i].is_partial(axis) && !typing.inputs[i].sharded_dim(axis);
  if (const auto dim = seen[i].sharded_dim(axis)) {
    const Rule::Factor& factor = rule.factors[static_cast<size_t>(rule.inputs[i][*dim])];
    if (factor.kind == Rule::Kind::whole) {
      out.because = Reason::Because::whole;
      out.factor = factor.name;
      return;
    }
  }
  const Meeting meeting(rule, seen, typing);
  const auto part = summed ? meeting.spoiler(i, axis) : meeting.leader(i, axis, source_.staying(op));
  out.because = !summed ? Reason::Because::operand
                : part  ? Reason::Because::beside
                        : Reason::Because::no_partial;
  if (part) out.decider = value_of(op, *part, seen, axis);
}

// A part of an op; a gradient that is not where the op is to see it is known by its forward value.
ValueId Reasons::value_of(const Op& op, size_t part, const std::vector<Placement>& seen, AxisId axis) const {
  if (part >= op.in.size()) {
    const size_t k = part - op.in.size();
    return op.phase == Phase::weight_grad && k < op.grad_out.size() ? made(op.grad_out[k])
                                                                    : placed_.map[op.out[k]];
  }
  const bool moves = !same_cut(placement_of(op.in[part]), seen[part], axis);
  return moves && part < op.grad_in.size() && op.grad_in[part] != kNone ? made(op.grad_in[part])
                                                                        : placed_.map[op.in[part]];
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
