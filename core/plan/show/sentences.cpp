#include "plan/show/sentences.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/ops.h"

namespace tenon {

namespace {

// What a value is to an op: "its operand 'w'".
std::string part_text(const Graph& graph, const Op& op, ValueId id) {
  const std::string& name = shown_name(graph, id);
  const auto in = [&](const std::vector<ValueId>& ids) {
    return std::ranges::any_of(
        ids, [&](ValueId one) { return one != kNone && graph.made(one) == graph.made(id); });
  };
  if (in(op.in)) return fmt::format("its operand '{}'", name);
  if (in(op.out)) return fmt::format("its result '{}'", name);
  return fmt::format("the gradient that it {} of '{}'", in(op.grad_in) ? "reads" : "makes", name);
}

}  // namespace

const std::string& shown_name(const Graph& graph, ValueId id) { return graph.value(graph.made(id)).name; }

std::string placement_text(const Graph& graph, const Mesh& mesh, ValueId id) {
  return text(graph.value(id).placement, graph.value(id).dims, mesh);
}

std::string rule_text(const OpDef& def) {
  std::string out = fmt::format("{}: {} -> {}", def.kind, def.inputs, def.outputs);
  if (def.whole[0] != '\0') out += fmt::format("; whole: {}", def.whole);
  if (def.linear[0] != '\0') out += fmt::format("; partial sums: {}", def.linear);
  return out;
}

std::string op_text(const Graph& graph, const Op& op) {
  constexpr size_t kMost = 4;
  const auto list = [&](const std::vector<ValueId>& ids) {
    std::string out;
    for (size_t i = 0; i < ids.size() && i < kMost; ++i)
      out += (i > 0 ? ", " : "") + graph.value(ids[i]).name;
    return ids.size() > kMost ? fmt::format("{}, ... ({} in all)", out, ids.size()) : out;
  };
  return fmt::format("{}: {} <- {}", op.def->kind, list(op.out), list(op.in));
}

std::string said_by(const Graph& graph, const Mesh& mesh, const Origin& origin) {
  const Value& value = graph.value(origin.pinned);
  const auto pin = std::ranges::find(value.pins, origin.axis, &Pin::axis);
  const std::string& axis = mesh.axes[origin.axis].name;
  if (pin == value.pins.end() || !pin->dim)
    return fmt::format("wants '{}' whole over {}", shown_name(graph, origin.pinned), axis);
  return fmt::format("cuts '{}' by {} over {}", shown_name(graph, origin.pinned), value.dims[*pin->dim].name,
                     axis);
}

std::string sentence_of(const Graph& graph, const Mesh& mesh, const Reason& reason) {
  const Op* reader = reason.reader == kNone ? nullptr : &graph.op(reason.reader);
  const std::string kind = reader == nullptr ? "" : reader->def->kind;
  const std::string value = shown_name(graph, reason.value);
  std::string decider, where;
  if (reason.decider != kNone) {
    decider = shown_name(graph, reason.decider);
    where = placement_text(graph, mesh, reason.decider);
  }
  switch (reason.because) {
    case Reason::Because::whole:
      return fmt::format("{} cannot be cut over its factor {}: it needs the whole", kind, reason.factor);
    case Reason::Because::no_partial:
      return fmt::format("{} does not take '{}' as a partial sum", kind, value);
    case Reason::Because::beside:
      return fmt::format("{} does not take '{}' as a partial sum beside {}, which is {}", kind, value,
                         part_text(graph, *reader, reason.decider), where);
    case Reason::Because::operand: {
      const bool stays = graph.value(reason.decider).role == Role::param &&
                         std::ranges::count(reader->in, reason.decider) > 0;
      return fmt::format("{} is cut as {} is, {}{}", kind, part_text(graph, *reader, reason.decider), where,
                         stays ? ": activations come to the weights, not the other way" : "");
    }
    case Reason::Because::as_forward: {
      const bool partial = !graph.value(reason.decider).placement.partials.empty();
      return fmt::format("{} uses the gradient of '{}' where that was made, {}{}", kind, decider, where,
                         partial ? ": over the axis of a partial sum it is whole" : "");
    }
    case Reason::Because::in_place:
      return fmt::format("{} overwrites '{}' where that is, {}", kind, decider, where);
    case Reason::Because::accumulation:
      return fmt::format("all ops that add into '{}' agree on its placement, {}", decider, where);
    case Reason::Because::pin: return fmt::format("'{}' is pinned by {}", decider, reason.wanted_by.by);
    case Reason::Because::output: return fmt::format("every rank is told '{}'", value);
  }
  return "";
}

}  // namespace tenon
