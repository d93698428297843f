#include "graph/graph.h"

#include <algorithm>

#include "graph/ops.h"

namespace tenon {

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::forward: return "F";
    case Phase::input_grad: return "I";
    case Phase::weight_grad: return "W";
    case Phase::step: return "U";
  }
  return "?";
}

ValueId Graph::add_value(Value value) {
  values_.push_back(std::move(value));
  return static_cast<ValueId>(values_.size() - 1);
}

OpId Graph::append(Op op) {
  const auto id = static_cast<OpId>(ops_.size());
  for (ValueId out : op.out) values_[out].producer = id;
  if (op.rule == nullptr) op.rule = rule_for(*op.def, ranks_of(op.in));
  ops_.push_back(std::move(op));
  return id;
}

void Graph::become(OpId id, const OpDef& def) {
  ops_[id].def = &def;
  ops_[id].rule = rule_for(def, ranks_of(ops_[id].in));
}

std::shared_ptr<const Rule> Graph::rule_for(const OpDef& def, const std::vector<size_t>& ranks) {
  const auto [it, fresh] = rules_.try_emplace({&def, ranks});
  if (fresh) {
    if (auto rule = rule_of(def, ranks); rule.ok())
      it->second = std::make_shared<const Rule>(*std::move(rule));
  }
  return it->second;
}

std::optional<ValueId> Graph::find(const std::string& name) const {
  for (size_t i = 0; i < values_.size(); ++i) {
    if (values_[i].name == name) return static_cast<ValueId>(i);
  }
  return std::nullopt;
}

std::vector<ValueId> Graph::with_role(Role role) const {
  std::vector<ValueId> out;
  for (size_t i = 0; i < values_.size(); ++i) {
    if (values_[i].role == role) out.push_back(static_cast<ValueId>(i));
  }
  return out;
}

std::vector<size_t> Graph::ranks_of(const std::vector<ValueId>& ids) const {
  std::vector<size_t> out;
  for (ValueId id : ids) out.push_back(value(id).dims.size());
  return out;
}

ValueId Graph::made(ValueId id) const {
  while (true) {
    const OpId maker = value(id).producer;
    const uint32_t reason = maker == kNone ? kNone : op(maker).reason;
    if (reason == kNone) return id;
    id = reasons[reason].value;
  }
}

std::vector<bool> Graph::staying(const Op& op) const {
  std::vector<bool> out;
  for (ValueId id : op.in) out.push_back(value(id).role == Role::param);
  return out;
}

int Graph::stages() const {
  int out = 1;
  for (const Op& op : ops_) out = std::max(out, op.stage + 1);
  return out;
}

std::string text(const Graph& graph, ValueId id) {
  const Value& v = graph.value(id);
  return v.name + " " + name_of(v.dtype) + text(v.dims);
}

}  // namespace tenon
