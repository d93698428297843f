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

// Work that a gradient of an input needs belongs to that gradient, whatever asked for it first.
void settle_phases(Graph& graph) {
  for (OpId id = static_cast<OpId>(graph.ops().size()); id-- > 0;) {
    if (graph.op(id).phase != Phase::input_grad) continue;
    for (ValueId in : graph.op(id).in) {
      const OpId producer = graph.value(in).producer;
      if (producer == kNone || graph.op(producer).phase != Phase::weight_grad) continue;
      graph.op(producer).phase = Phase::input_grad;
    }
  }
}

}  // namespace

Result<JointGraph> build_joint(const Recipe& recipe, const Mesh& mesh, ProgramKind kind, int64_t batch,
                               const Annotate& annotate) {
  const bool with_loss = kind != ProgramKind::logits;
  TENON_TRY(ForwardGraph forward, build_forward(recipe, batch, recipe.context, with_loss));
  if (annotate) TENON_CHECK(annotate(forward.graph, mesh));
  if (kind != ProgramKind::train) forward = outside_training(forward);
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
  TENON_TRY(PlacedGraph placed, propagate(forward.graph, mesh, replicated));
  JointGraph out;
  for (const auto& [name, id] : outputs) out.outputs[name] = placed.map[id];
  for (const LeafGrad& leaf : leaves) out.leaves.push_back({placed.map[leaf.param], placed.map[leaf.grad]});
  for (ValueId id : forward.graph.with_role(Role::param)) out.params.push_back(placed.map[id]);
  for (ValueId id : forward.graph.with_role(Role::input)) {
    out.inputs[forward.graph.value(id).name] = placed.map[id];
  }
  out.graph = std::move(placed.graph);
  settle_phases(out.graph);
  return out;
}

Graphs build_graphs(const Recipe& recipe, const Mesh& mesh, int64_t batch, const Annotate& annotate) {
  Graphs out;
  auto forward = build_forward(recipe, batch, recipe.context, true);
  if (!forward.ok()) return out;
  out.model = forward->graph;
  if (annotate && !annotate(forward->graph, mesh).ok()) return out;
  auto placed = propagate(forward->graph, mesh, {forward->loss, forward->count});
  if (!placed.ok()) return out;
  out.placed = std::move(placed->graph);
  auto joint = build_joint(recipe, mesh, ProgramKind::train, batch, annotate);
  if (joint.ok()) out.joint = std::move(*joint);
  return out;
}

}  // namespace tenon
