#include "graph/outside_training.h"

#include <algorithm>

#include "graph/ops.h"

namespace tenon {
namespace {

bool of_training_alone(const Op& op) { return *op.def->training_only != '\0'; }

void add_pins(Value& value, const std::vector<Pin>& pins) {
  if (value.producer == kNone) return;
  for (const Pin& pin : pins) {
    if (std::ranges::count(value.pins, pin.axis, &Pin::axis) == 0) value.pins.push_back(pin);
  }
}

}  // namespace

ForwardGraph outside_training(ForwardGraph forward) {
  if (std::ranges::none_of(forward.graph.ops(), of_training_alone)) return forward;
  const Graph from = std::move(forward.graph);
  ForwardGraph out = std::move(forward);
  out.graph = Graph();
  out.graph.real = from.real;
  out.graph.pipeline = from.pipeline;
  out.graph.pipeline_by = from.pipeline_by;
  // An op's inputs have smaller ids than its outputs: what stands for a value is known before it.
  std::vector<ValueId> map;
  const OpId loss_op = out.loss_op;
  for (const Value& value : from.values()) {
    const Op* maker = value.producer == kNone ? nullptr : &from.op(value.producer);
    if (maker == nullptr || !of_training_alone(*maker)) {
      map.push_back(out.graph.add_value(value));
      continue;
    }
    map.push_back(map[maker->in[maker->def->input(maker->def->training_only)]]);
    add_pins(out.graph.value(map.back()), value.pins);
  }
  for (OpId id = 0; id < from.ops().size(); ++id) {
    Op op = from.op(id);
    if (of_training_alone(op)) continue;
    for (std::vector<ValueId>* ids : {&op.in, &op.out}) {
      for (ValueId& value : *ids) value = map[value];
    }
    const OpId made = out.graph.append(std::move(op));
    if (id == loss_op) out.loss_op = made;
  }
  for (ValueId* id : {&out.tokens, &out.targets, &out.positions, &out.samples, &out.step, &out.logits,
                      &out.loss, &out.count}) {
    if (*id != kNone) *id = map[*id];
  }
  return out;
}

}  // namespace tenon
