#include "graph/infer.h"

#include <algorithm>

namespace tenon {
namespace {

using Ids = std::vector<ValueId>;

Dtype resolve(OperandDef::Type type, Dtype real, Dtype first) {
  switch (type) {
    case OperandDef::Type::f64: return Dtype::f64;
    case OperandDef::Type::i32: return Dtype::i32;
    case OperandDef::Type::i64: return Dtype::i64;
    case OperandDef::Type::any: return first;
    case OperandDef::Type::real: break;
  }
  return real;
}

Status check_attrs(const OpDef& def, const Attrs& attrs) {
  for (const AttrDef& attr : def.attr_defs) {
    if (attrs.contains(attr.name)) continue;
    return Error{"G004", std::string(def.kind) + ": missing attribute '" + attr.name + "'", "", "",
                 TENON_E_RECIPE};
  }
  for (const auto& [name, value] : attrs) {
    if (std::ranges::count(def.attr_defs, name, &AttrDef::name) > 0) continue;
    return Error{"G004", std::string(def.kind) + ": unknown attribute '" + name + "'", "", "",
                 TENON_E_RECIPE};
  }
  return {};
}

std::string describe_inputs(const Graph& graph, const Ids& in) {
  std::string out;
  for (ValueId id : in) out += (out.empty() ? "" : ", ") + text(graph, id);
  return out;
}

Error bad_operands(const OpDef& def, const Graph& graph, const Ids& in, const std::string& why) {
  return Error{"G002", std::string(def.kind) + "(" + describe_inputs(graph, in) + "): " + why, "",
               std::string("it takes ") + def.inputs, TENON_E_RECIPE};
}

// The name of a dim whose size an attribute gives.
std::string dim_name(const SizeNote& note) {
  for (const DimLetter& known : dim_letters()) {
    if (note.letter == known.letter) return known.name;
  }
  return note.attr;
}

const SizeNote* find_note(const std::vector<SizeNote>& notes, size_t operand, size_t dim) {
  for (const SizeNote& note : notes) {
    if (note.operand == operand && note.dim == dim) return &note;
  }
  return nullptr;
}

Status check_sizes(const OpDef& def, const Graph& graph, const Ids& in, const Attrs& attrs) {
  for (const auto* notes : {&def.in_notes, &def.out_notes}) {
    for (const SizeNote& note : *notes) {
      if (attr_int(attrs, note.attr) > 0) continue;
      return bad_operands(def, graph, in, "attribute '" + note.attr + "' must be at least 1");
    }
  }
  return {};
}

Result<std::vector<size_t>> check_operands(const OpDef& def, const Graph& graph, const Ids& in) {
  const bool right_count = def.variadic ? in.size() >= def.in.size() : in.size() == def.in.size();
  if (!right_count) return bad_operands(def, graph, in, "wrong number of operands");
  std::vector<size_t> ranks;
  for (size_t i = 0; i < in.size(); ++i) {
    const Value& value = graph.value(in[i]);
    const OperandDef& operand = def.in[def.variadic ? i - std::min(i, in.size() - def.in.size()) : i];
    if (value.dtype != resolve(operand.type, graph.real, graph.value(in[0]).dtype)) {
      return bad_operands(def, graph, in, "operand '" + operand.name + "' is " + name_of(value.dtype));
    }
    ranks.push_back(value.dims.size());
  }
  return ranks;
}

// The dim that each factor stands for: name and size.
Result<Dims> factor_dims(const OpDef& def, const Rule& rule, const Graph& graph, const Ids& in,
                         const Attrs& attrs) {
  Dims factors(rule.factors.size(), Dim{"", -1});
  for (size_t i = 0; i < in.size(); ++i) {
    for (size_t d = 0; d < rule.inputs[i].size(); ++d) {
      const Dim& dim = graph.value(in[i]).dims[d];
      const SizeNote* note = find_note(def.in_notes, i, d);
      int64_t size = dim.size;
      if (note != nullptr && __builtin_mul_overflow(size, attr_int(attrs, note->attr), &size)) {
        return bad_operands(def, graph, in, std::string("attribute '") + note->attr + "' is too large");
      }
      Dim& known = factors[rule.inputs[i][d]];
      if (known.size < 0) known.size = size;
      if (known.name.empty() && note == nullptr) known.name = dim.name;
      if (known.size != size) {
        return bad_operands(def, graph, in,
                            dim.name + " is " + std::to_string(known.size) + " and " + std::to_string(size));
      }
    }
  }
  for (const SizeNote& note : def.out_notes) {
    if (note.divides) continue;
    factors[rule.outputs[note.operand][note.dim]] = Dim{dim_name(note), attr_int(attrs, note.attr)};
  }
  return factors;
}

}  // namespace

Result<std::vector<TensorType>> infer_outputs(const OpDef& def, Graph& graph, const Ids& in,
                                              const Attrs& attrs) {
  TENON_TRY(const std::vector<size_t> ranks, check_operands(def, graph, in));
  TENON_CHECK(check_attrs(def, attrs));
  const auto rule = graph.rule_for(def, ranks);
  if (rule == nullptr) return bad_operands(def, graph, in, "wrong number of dimensions");
  TENON_CHECK(check_sizes(def, graph, in, attrs));
  TENON_TRY(const Dims factors, factor_dims(def, *rule, graph, in, attrs));
  std::vector<TensorType> out;
  for (size_t k = 0; k < rule->outputs.size(); ++k) {
    TensorType type{resolve(def.out[k].type, graph.real, graph.value(in[0]).dtype), {}};
    for (size_t d = 0; d < rule->outputs[k].size(); ++d) {
      Dim dim = factors[rule->outputs[k][d]];
      const SizeNote* note = find_note(def.out_notes, k, d);
      if (note != nullptr && note->divides) {
        const int64_t parts = attr_int(attrs, note->attr);
        if (dim.size % parts != 0) {
          return bad_operands(def, graph, in,
                              dim.name + " " + std::to_string(dim.size) + " is not divisible by " +
                                  note->attr + " " + std::to_string(parts));
        }
        dim = Dim{dim_name(*note), dim.size / parts};
      }
      type.dims.push_back(std::move(dim));
    }
    if (!fits(type.dims)) {
      return bad_operands(
          def, graph, in,
          "output " + text(type.dims) + " has more than " + std::to_string(kMaxElements) + " elements");
    }
    out.push_back(std::move(type));
  }
  return out;
}

double flops_of(const Graph& graph, const Op& op) {
  if (op.rule == nullptr || reshard_of(*op.def) != TransferKind::none) return 0;
  std::vector<double> sizes(op.rule->factors.size(), 1);
  for (size_t i = 0; i < op.in.size(); ++i) {
    for (size_t d = 0; d < op.rule->inputs[i].size(); ++d) {
      sizes[op.rule->inputs[i][d]] = static_cast<double>(graph.value(op.in[i]).dims[d].size);
    }
  }
  double points = op.def->flops;
  for (double size : sizes) points *= size;
  return points;
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

}  // namespace tenon
