#include "graph/graph.h"

#include <algorithm>

#include "graph/infer.h"

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
  ops_.push_back(std::move(op));
  return id;
}

Result<std::vector<ValueId>> Graph::add_op(const std::string& kind, const std::vector<ValueId>& in,
                                           const Attrs& attrs, Phase phase, int layer,
                                           const std::vector<std::string>& names) {
  const OpDef* def = find_op(kind);
  if (def == nullptr) {
    return Error{"G003", "unknown op '" + kind + "'", "", "docs/reference/ops.md lists the kinds",
                 TENON_E_RECIPE};
  }
  TENON_TRY(std::vector<TensorType> types, infer_outputs(*def, *this, in, attrs));
  Op op{def, in, {}, attrs, phase, layer, {}, {}, 0, {}, {}};
  for (size_t i = 0; i < types.size(); ++i) {
    Value value;
    value.name = i < names.size() ? names[i] : names.front() + "." + def->out[i].name;
    value.dtype = types[i].dtype;
    value.dims = std::move(types[i].dims);
    value.role = phase == Phase::forward ? Role::act : Role::grad;
    value.layer = layer;
    op.out.push_back(add_value(std::move(value)));
  }
  const OpId id = append(std::move(op));
  return ops_[id].out;
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
