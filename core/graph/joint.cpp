#include "graph/joint.h"

#include "graph/ops.h"
#include "graph/outside_training.h"
#include "graph/propagate.h"

namespace tenon {

const char* name_of(ProgramKind kind) {
  switch (kind) {
    case ProgramKind::train: return "train";
    case ProgramKind::eval: return "eval";
    case ProgramKind::logits: return "logits";
  }
  return "?";
}

namespace {

struct StepValues {
  ValueId norm = kNone, scale = kNone;
};

// Gradient norm, clipping and update. Which reductions this needs is left to propagation: sqnorm and
// update accept no partial, so each gradient is reduced over exactly the axes it is partial on.
Result<StepValues> add_update(Graph& graph, const Recipe& recipe, const std::vector<LeafGrad>& leaves,
                              ValueId count) {
  const auto first = static_cast<OpId>(graph.ops().size());
  std::vector<ValueId> squares;
  for (const LeafGrad& leaf : leaves) {
    TENON_TRY(const auto sq, graph.add_op("sqnorm", {leaf.grad}, {}, Phase::step, -1,
                                          {graph.value(leaf.param).name + ".sq"}));
    squares.push_back(sq[0]);
  }
  squares.push_back(count);
  TENON_TRY(const auto clip,
            graph.add_op("clip_scale", squares, {{"clip", recipe.clip}}, Phase::step, -1, {"norm", "scale"}));
  for (const LeafGrad& leaf : leaves) {
    TENON_TRY(const auto updated, graph.add_op("update", {leaf.grad, leaf.param, clip[1]}, {}, Phase::step,
                                               -1, {graph.value(leaf.param).name + ".new"}));
    graph.value(updated[0]).role = Role::state;
  }
  for (OpId id = first; id < graph.ops().size(); ++id) graph.op(id).pointer = "/optimizer";
  return StepValues{clip[0], clip[1]};
}

// One prompt is on all ranks that would share a batch.
void replicate_batch(Graph& graph) {
  for (ValueId id : graph.with_role(Role::input)) {
    Value& value = graph.value(id);
    std::erase_if(value.pins,
                  [&](const Pin& pin) { return pin.dim && value.dims[*pin.dim].name == "batch"; });
  }
}

// Work that a gradient of an input needs belongs to that gradient, whatever asked for it first; and so does
// what another stage reads, whose gradients of weights may come before those of this one.
void settle_phases(Graph& graph) {
  for (OpId id = static_cast<OpId>(graph.ops().size()); id-- > 0;) {
    const Op& op = graph.op(id);
    for (ValueId in : op.in) {
      const OpId producer = graph.value(in).producer;
      if (producer == kNone || graph.op(producer).phase != Phase::weight_grad) continue;
      const bool elsewhere = op.phase == Phase::weight_grad && graph.op(producer).stage != op.stage;
      if (op.phase == Phase::input_grad || elsewhere) graph.op(producer).phase = Phase::input_grad;
    }
  }
}

// The axes that share out samples, major first. In exact mode they are the upper levels of the fixed tree of
// sums, in which nothing else comes in between.
std::vector<AxisId> tree_axes(const Recipe& recipe, const Value& tokens) {
  std::vector<AxisId> out;
  for (const Pin& pin : tokens.pins) {
    if (recipe.exact && pin.dim == size_t{0}) out.push_back(pin.axis);
  }
  return out;
}

// Per value of a placed graph: what of the graph before it is, `map` of which is where that went.
std::vector<ValueId> ids_before(const Graph& placed, const std::vector<ValueId>& map) {
  std::vector<ValueId> made(placed.values().size(), kNone), out;
  for (ValueId id = 0; id < map.size(); ++id) made[placed.made(map[id])] = id;
  for (ValueId id = 0; id < made.size(); ++id) out.push_back(made[placed.made(id)]);
  return out;
}

// What a joint graph names, by the ids of the placed graph.
JointGraph mapped(const JointGraph& from, const std::vector<ValueId>& map) {
  JointGraph out;
  for (const auto& [name, id] : from.inputs) out.inputs[name] = map[id];
  for (const auto& [name, id] : from.outputs) out.outputs[name] = map[id];
  for (const LeafGrad& leaf : from.leaves) out.leaves.push_back({map[leaf.param], map[leaf.grad]});
  for (ValueId id : from.params) out.params.push_back(map[id]);
  return out;
}

}  // namespace

Result<JointGraph> build_joint(const Recipe& recipe, const Mesh& mesh, ProgramKind kind, int64_t batch,
                               const Annotate& annotate) {
  const bool with_loss = kind != ProgramKind::logits;
  TENON_TRY(ForwardGraph forward, build_forward(recipe, batch, recipe.context, with_loss));
  TENON_CHECK(check_total_size(forward.graph));
  if (annotate) TENON_CHECK(annotate(forward.graph, mesh));
  if (kind != ProgramKind::train) forward = outside_training(std::move(forward));
  if (kind == ProgramKind::logits) replicate_batch(forward.graph);
  std::map<std::string, ValueId> outputs;
  std::vector<LeafGrad> leaves;
  std::vector<ValueId> replicated;
  if (with_loss) {
    outputs = {{"loss", forward.loss}, {"count", forward.count}};
    replicated = {forward.loss, forward.count};
  } else {
    outputs = {{"logits", forward.logits}};
    replicated = {forward.logits};
  }
  if (kind == ProgramKind::train) {
    TENON_TRY(leaves, differentiate(forward.graph, forward.loss_op));
    TENON_TRY(const StepValues step, add_update(forward.graph, recipe, leaves, outputs["count"]));
    outputs["norm"] = step.norm;
    outputs["scale"] = step.scale;
  }
  const std::vector<AxisId> first = tree_axes(recipe, forward.graph.value(forward.tokens));
  TENON_TRY(PlacedGraph placed, propagate(forward.graph, mesh, replicated, first));
  JointGraph before{std::move(forward.graph), {}, std::move(outputs), std::move(leaves), {}};
  before.params = before.graph.with_role(Role::param);
  for (ValueId id : before.graph.with_role(Role::input)) before.inputs[before.graph.value(id).name] = id;
  JointGraph out = mapped(before, placed.map);
  out.graph = std::move(placed.graph);
  out.unplaced = std::make_shared<const JointGraph>(std::move(before));
  out.unplaced_ids = ids_before(out.graph, placed.map);
  settle_phases(out.graph);
  return out;
}

Graphs build_graphs(const Recipe& recipe, const Mesh& mesh, int64_t batch, const Annotate& annotate) {
  Graphs out;
  auto forward = build_forward(recipe, batch, recipe.context, true);
  if (!forward.ok()) return out;
  out.model = forward->graph;
  if (annotate && !annotate(forward->graph, mesh).ok()) return out;
  const std::vector<AxisId> first = tree_axes(recipe, forward->graph.value(forward->tokens));
  auto placed = propagate(forward->graph, mesh, {forward->loss, forward->count}, first);
  if (!placed.ok()) return out;
  out.placed = std::move(placed->graph);
  auto joint = build_joint(recipe, mesh, ProgramKind::train, batch, annotate);
  if (joint.ok()) out.joint = std::move(*joint);
  return out;
}

}  // namespace tenon
