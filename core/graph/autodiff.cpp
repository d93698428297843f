#include "graph/autodiff.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "graph/ops.h"

namespace tenon {
namespace {

// Values that depend on a parameter.
std::vector<bool> depends_on_params(const Graph& graph) {
  std::vector<bool> needed(graph.values().size());
  for (ValueId id : graph.with_role(Role::param)) needed[id] = true;
  for (const Op& op : graph.ops()) {
    const bool any = std::any_of(op.in.begin(), op.in.end(), [&needed](ValueId v) { return needed[v]; });
    for (ValueId out : op.out) needed[out] = any;
  }
  return needed;
}

}  // namespace

ValueId Backward::in(std::string_view name) const { return op_.in[op_.def->input(name)]; }

ValueId Backward::grad(size_t k) const {
  const auto it = grads_.find(op_.out[k]);
  return it == grads_.end() ? kNone : it->second;
}

void Backward::belongs(Op& made) const {
  made.stage = op_.stage;
  made.gradient_of = id_;
  made.pointer = op_.pointer;
}

Status Backward::contribute(ValueId target, ValueId grad) {
  if (target >= needed_.size() || !needed_[target]) return {};
  if (graph_.value(target).role == Role::param) {
    return Error{"G007",
                 std::string(op_.def->kind) + ": parameter '" + graph_.value(target).name +
                     "' is a plain operand, through which its gradient cannot be added up over microbatches",
                 graph_.value(target).name, "use bias_add, or another op that takes it as a weight",
                 TENON_E_RECIPE};
  }
  const auto [it, fresh] = grads_.try_emplace(target, grad);
  if (fresh) return {};
  const Value& value = graph_.value(target);
  TENON_TRY(const auto sum, graph_.add_op("add", {it->second, grad}, {}, Phase::input_grad, value.layer,
                                          {value.name + ".grad+"}));
  belongs(graph_.op(graph_.value(sum[0]).producer));
  it->second = sum[0];
  return {};
}

Result<std::vector<ValueId>> Backward::add(const std::string& kind, const std::vector<ValueId>& in,
                                           const Attrs& attrs, Phase phase,
                                           const std::vector<ValueId>& targets) {
  std::vector<std::string> names;
  for (ValueId target : targets) names.push_back(graph_.value(target).name + ".grad");
  TENON_TRY(auto out, graph_.add_op(kind, in, attrs, phase, op_.layer, names));
  Op& made = graph_.op(graph_.value(out[0]).producer);
  belongs(made);
  made.grad_out = targets;
  for (ValueId id : in) {
    made.grad_in.push_back(kNone);
    for (size_t k = 0; k < op_.out.size(); ++k) {
      if (grad(k) == id) made.grad_in.back() = op_.out[k];
    }
  }
  return out;
}

void Backward::pass(ValueId target, ValueId grad) { passed_.emplace_back(target, grad); }

Status Backward::emit(const std::string& kind, const std::vector<ValueId>& in, const Attrs& attrs,
                      const std::vector<ValueId>& targets) {
  const bool any = std::any_of(targets.begin(), targets.end(),
                               [this](ValueId t) { return t < needed_.size() && needed_[t]; });
  if (!any) return {};
  TENON_TRY(const auto out, add(kind, in, attrs, Phase::input_grad, targets));
  for (size_t i = 0; i < targets.size(); ++i) TENON_CHECK(contribute(targets[i], out[i]));
  return {};
}

Status Backward::leaf(const std::string& kind, const std::vector<ValueId>& in, const Attrs& attrs,
                      const std::vector<ValueId>& targets) {
  for (ValueId target : targets) {
    if (graph_.value(target).role != Role::param) {
      return Error{"G006", kind + ": operand '" + graph_.value(target).name + "' must be a parameter", "", "",
                   TENON_E_RECIPE};
    }
  }
  TENON_TRY(const auto out, add(kind, in, attrs, Phase::weight_grad, targets));
  std::vector<ValueId> acc;
  for (size_t i = 0; i < targets.size(); ++i) {
    // The gradient keeps the parameter's own dims: names as well as sizes.
    graph_.value(out[i]).dims = graph_.value(targets[i]).dims;
    const auto [it, fresh] = grads_.try_emplace(targets[i], out[i]);
    if (!fresh) {
      acc.push_back(std::exchange(it->second, out[i]));
      std::erase(leaf_order_, targets[i]);
    }
    leaf_order_.push_back(targets[i]);
  }
  if (!acc.empty() && acc.size() != targets.size()) {
    return Error{"G006", kind + ": parameters of one op must be tied together or not at all",
                 graph_.value(targets[0]).name, "", TENON_E_RECIPE};
  }
  graph_.op(static_cast<OpId>(graph_.ops().size() - 1)).acc = acc;
  return {};
}

Status Backward::by_row() {
  const OpDef& def = *op_.def;
  const std::string weight_grad = def.weight_grad, input_grad = def.input_grad;
  const bool passes = *def.passes != '\0';
  if (weight_grad.empty() && input_grad.empty() && !passes) {
    return Error{"G005", std::string("op '") + def.kind + "' has no backward", "", "", TENON_E_RECIPE};
  }
  if (!weight_grad.empty()) TENON_CHECK(derive(weight_grad, Phase::weight_grad));
  if (!input_grad.empty()) TENON_CHECK(derive(input_grad, Phase::input_grad));
  if (!passes) return {};
  std::stringstream names(def.passes);
  for (std::string name; names >> name;) pass(in(name), grad(0));
  return {};
}

Status Backward::derive(const std::string& kind, Phase phase) {
  const OpDef &from = *op_.def, &def = *find_op(kind);
  std::vector<ValueId> operands, targets;
  for (const OperandDef& operand : def.in) {
    const auto gradient = find_operand(from.out, operand.name.substr(1)),
               input = find_operand(from.in, operand.name);
    if (operand.name[0] == 'd' && gradient)
      operands.push_back(grad(*gradient));
    else
      operands.push_back(input ? op_.in[*input] : op_.out[from.output(operand.name)]);
  }
  for (const OperandDef& operand : def.out) targets.push_back(in(operand.name.substr(1)));
  Attrs attrs;
  for (const AttrDef& attr : def.attr_defs) {
    const auto it = op_.attrs.find(attr.name);
    if (it != op_.attrs.end()) attrs.insert(*it);
  }
  for (const SizeNote& note : def.out_notes) {  // a gradient is as large as its target
    if (!note.divides) attrs.try_emplace(note.attr, graph_.value(targets[note.operand]).dims[note.dim].size);
  }
  return phase == Phase::weight_grad ? leaf(kind, operands, attrs, targets)
                                     : emit(kind, operands, attrs, targets);
}

Status Backward::run(OpId id, OpId loss_op) {
  id_ = id;
  op_ = graph_.op(id);
  passed_.clear();
  for (size_t k = 1; k < op_.out.size(); ++k) {
    if (!grads_.contains(op_.out[k])) continue;
    return Error{"G005",
                 "the loss depends on output '" + op_.def->out[k].name + "' of " + op_.def->kind +
                     ", which has no backward",
                 graph_.value(op_.out[k]).name, "use output '" + op_.def->out[0].name + "' only",
                 TENON_E_RECIPE};
  }
  const bool reached = grads_.contains(op_.out[0]) || id == loss_op;
  if (!reached || !needed_[op_.out[0]]) return {};
  TENON_CHECK(op_.def->backward != nullptr ? op_.def->backward(*this, op_) : by_row());
  for (const auto& [target, grad] : passed_) TENON_CHECK(contribute(target, grad));
  return {};
}

std::vector<LeafGrad> Backward::leaves() const {
  std::vector<LeafGrad> out;
  for (ValueId param : leaf_order_) out.push_back({param, grads_.at(param)});
  return out;
}

Result<std::vector<LeafGrad>> differentiate(Graph& graph, OpId loss_op) {
  Backward backward(graph, depends_on_params(graph));
  for (OpId id = loss_op + 1; id-- > 0;) TENON_CHECK(backward.run(id, loss_op));
  std::vector<LeafGrad> leaves = backward.leaves();
  std::vector<bool> reached(graph.values().size());
  for (const LeafGrad& leaf : leaves) reached[leaf.param] = true;
  for (ValueId param : graph.with_role(Role::param)) {
    if (!reached[param]) {
      return Error{"G005", "the loss does not depend on parameter '" + graph.value(param).name + "'", "",
                   "remove it, or use it", TENON_E_RECIPE};
    }
  }
  return leaves;
}

}  // namespace tenon
