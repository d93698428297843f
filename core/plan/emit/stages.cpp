#include "plan/emit/stages.h"

#include <algorithm>

#include "plan/emit/expand.h"

namespace tenon {
namespace {

constexpr auto index(RowKind kind) { return static_cast<size_t>(kind); }

// The rows that run an op of a phase.
std::vector<RowKind> rows_with(Phase phase) {
  switch (phase) {
    case Phase::forward: return {RowKind::forward};
    case Phase::input_grad: return {RowKind::input_grad, RowKind::backward};
    case Phase::weight_grad: return {RowKind::weight_grad, RowKind::backward};
    case Phase::step: break;
  }
  return {};
}

// The op that makes a value in each microbatch, if one does.
const Op* maker_of(const Graph& graph, ValueId id) {
  const OpId producer = graph.value(id).producer;
  if (producer == kNone || graph.op(producer).phase == Phase::step) return nullptr;
  return &graph.op(producer);
}

// Marks that `op` reads a value, unless the two are in one stage.
void note_reader(const Graph& graph, const Op& op, ValueId in, StagePlan& plan) {
  const Op* maker = maker_of(graph, in);
  if (maker == nullptr) return;
  auto& readers = plan.readers[in];
  if (op.phase == Phase::step)
    plan.crossing[in] = true;
  else if (maker->stage != op.stage && std::ranges::count(readers, op.stage) == 0)
    readers.push_back(op.stage);
}

bool exchanges(const Graph& graph, const Mesh& mesh, const Op& op) {
  const TransferKind reshard = reshard_of(*op.def);
  if (reshard != TransferKind::none) return reshard != TransferKind::slice;
  const Expansion* expansion = find_expansion(op.def->kind);
  return expansion != nullptr && mesh.size(expansion->axes(graph, op)) > 1;
}

}  // namespace

const std::vector<OpId>& StagePlan::ops(RowKind kind, int stage) const {
  return by_row[index(kind)][static_cast<size_t>(stage)];
}

StagePlan plan_stages(const JointGraph& joint, const Mesh& mesh) {
  const Graph& graph = joint.graph;
  StagePlan out;
  for (auto& stages : out.by_row) stages.resize(static_cast<size_t>(graph.stages()));
  out.readers.resize(graph.values().size());
  out.crossing.resize(graph.values().size());
  for (OpId id = 0; id < graph.ops().size(); ++id) {
    const Op& op = graph.op(id);
    for (RowKind kind : rows_with(op.phase))
      out.by_row[index(kind)][static_cast<size_t>(op.stage)].push_back(id);
    for (ValueId in : op.in) note_reader(graph, op, in, out);
    out.exchanges.push_back(exchanges(graph, mesh, op));
  }
  for (const auto& [name, id] : joint.outputs) {
    if (maker_of(graph, id) != nullptr) out.crossing[id] = true;
  }
  for (auto& readers : out.readers) std::sort(readers.begin(), readers.end());
  return out;
}

Rows forward_rows(const std::vector<int>& owner, int microbatches) {
  Rows rows;
  rows.owner = owner;
  rows.stages = static_cast<int>(owner.size());
  rows.microbatches = microbatches;
  rows.ranks = *std::max_element(owner.begin(), owner.end()) + 1;
  rows.of_rank.resize(static_cast<size_t>(rows.ranks));
  for (int mb = 0; mb < microbatches; ++mb) {
    for (int stage = 0; stage < rows.stages; ++stage)
      rows.of_rank[static_cast<size_t>(owner[static_cast<size_t>(stage)])].push_back(
          {RowKind::forward, stage, mb, 0});
  }
  return rows;
}

Rows plain_rows(int microbatches) {
  Rows rows{1, 1, microbatches, {{}}, {0}};
  for (int mb = 0; mb < microbatches; ++mb) {
    rows.of_rank[0].push_back({RowKind::forward, 0, mb, 0});
    rows.of_rank[0].push_back({RowKind::backward, 0, mb, 0});
  }
  return rows;
}

}  // namespace tenon
