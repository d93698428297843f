#include "plan/stages.h"

#include <algorithm>

namespace tenon {
namespace {

constexpr auto index(RowKind kind) { return static_cast<size_t>(kind); }

}  // namespace

const std::vector<OpId>& StagePlan::ops(RowKind kind, int stage) const {
  return by_row[index(kind)][static_cast<size_t>(stage)];
}

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

StagePlan plan_stages(const JointGraph& joint) {
  const Graph& graph = joint.graph;
  StagePlan out;
  for (auto& stages : out.by_row) stages.resize(static_cast<size_t>(graph.stages()));
  out.readers.resize(graph.values().size());
  out.crossing.resize(graph.values().size());
  const auto producer_of = [&](ValueId id) -> const Op* {
    const OpId producer = graph.value(id).producer;
    return producer == kNone ? nullptr : &graph.op(producer);
  };
  for (OpId id = 0; id < graph.ops().size(); ++id) {
    const Op& op = graph.op(id);
    const auto stage = static_cast<size_t>(op.stage);
    switch (op.phase) {
      case Phase::forward: out.by_row[index(RowKind::forward)][stage].push_back(id); break;
      case Phase::input_grad: out.by_row[index(RowKind::input_grad)][stage].push_back(id); break;
      case Phase::weight_grad: out.by_row[index(RowKind::weight_grad)][stage].push_back(id); break;
      case Phase::step: break;
    }
    const bool gradient = op.phase == Phase::input_grad || op.phase == Phase::weight_grad;
    if (gradient) out.by_row[index(RowKind::backward)][stage].push_back(id);
    for (ValueId in : op.in) {
      const Op* producer = producer_of(in);
      if (producer == nullptr || producer->phase == Phase::step) continue;
      auto& readers = out.readers[in];
      if (op.phase == Phase::step)
        out.crossing[in] = true;
      else if (producer->stage != op.stage && std::ranges::count(readers, op.stage) == 0)
        readers.push_back(op.stage);
    }
  }
  for (const auto& [name, id] : joint.outputs) {
    const Op* producer = producer_of(id);
    if (producer != nullptr && producer->phase != Phase::step) out.crossing[id] = true;
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
