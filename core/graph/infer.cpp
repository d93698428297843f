#include "graph/infer.h"

#include <fmt/format.h>

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

Error bad_attr(const char* code, const OpDef& def, const std::string& cause) {
  return Error{code, std::string(def.kind) + ": " + cause, "", "", TENON_E_RECIPE};
}

// Of the type and within the range that the row says.
Status check_value(const OpDef& def, const AttrDef& attr, const Attr& value) {
  const bool whole = std::holds_alternative<int64_t>(value);
  const double number = whole ? static_cast<double>(std::get<int64_t>(value)) : std::get<double>(value);
  const std::string shown = whole ? std::to_string(std::get<int64_t>(value)) : fmt::format("{}", number);
  if (attr.integer && !whole)
    return bad_attr("R003", def, fmt::format("attribute '{}' must be an integer, got {}", attr.name, shown));
  for (const AttrBound& bound : attr.bounds) {
    if (keeps(bound.limit, number, bound.than)) continue;
    return bad_attr("R005", def,
                    fmt::format("attribute '{}' = {} must be {} {}", attr.name, shown,
                                words_of(bound.limit).words, bound.than));
  }
  return {};
}

Status check_attrs(const OpDef& def, const Attrs& attrs) {
  for (const AttrDef& attr : def.attr_defs) {
    const auto given = attrs.find(attr.name);
    if (given == attrs.end()) return bad_attr("G004", def, "missing attribute '" + attr.name + "'");
    TENON_CHECK(check_value(def, attr, given->second));
  }
  for (const auto& [name, value] : attrs) {
    if (std::ranges::count(def.attr_defs, name, &AttrDef::name) == 0)
      return bad_attr("G004", def, "unknown attribute '" + name + "'");
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

// The limits of the row's letters. Where an attribute says how large something is, it is the attribute that
// does not fit; else the operands' shapes do not.
Status check_sizes(const OpDef& def, const Rule& rule, const Dims& factors, const Graph& graph, const Ids& in,
                   const Attrs& attrs) {
  const auto dim_of = [&](const std::string& letter) -> const Dim* {
    for (size_t f = 0; f < factors.size(); ++f) {
      if (rule.factors[f].name == letter) return &factors[f];
    }
    return nullptr;
  };
  for (const SizeLimit& limit : def.size_limits) {
    const Dim *dim = dim_of(limit.letter), *other = dim_of(limit.than);
    if (dim == nullptr) continue;
    const bool by_attr = attrs.contains(limit.than);
    const int64_t than = other != nullptr ? other->size
                         : by_attr        ? attr_int(attrs, limit.than)
                                          : std::stoll(limit.than);
    if (keeps(limit.limit, static_cast<double>(dim->size), static_cast<double>(than))) continue;
    const std::string name = other != nullptr ? other->name + " " : by_attr ? "'" + limit.than + "' = " : "";
    const std::string why =
        fmt::format("{} {} must be {} {}{}", dim->name, dim->size, words_of(limit.limit).words, name, than);
    const bool sized = std::ranges::count(def.out_notes, limit.letter, &SizeNote::letter) > 0;
    if (by_attr || sized) return bad_attr("R005", def, why);
    return bad_operands(def, graph, in, why);
  }
  return {};
}

}  // namespace

Result<std::vector<TensorType>> infer_outputs(const OpDef& def, Graph& graph, const Ids& in,
                                              const Attrs& attrs) {
  TENON_TRY(const std::vector<size_t> ranks, check_operands(def, graph, in));
  TENON_CHECK(check_attrs(def, attrs));
  const auto rule = graph.rule_for(def, ranks);
  if (rule == nullptr) return bad_operands(def, graph, in, "wrong number of dimensions");
  TENON_TRY(const Dims factors, factor_dims(def, *rule, graph, in, attrs));
  TENON_CHECK(check_sizes(def, *rule, factors, graph, in, attrs));
  std::vector<TensorType> out;
  for (size_t k = 0; k < rule->outputs.size(); ++k) {
    TensorType type{resolve(def.out[k].type, graph.real, graph.value(in[0]).dtype), {}};
    for (size_t d = 0; d < rule->outputs[k].size(); ++d) {
      Dim dim = factors[rule->outputs[k][d]];
      const SizeNote* note = find_note(def.out_notes, k, d);
      if (note != nullptr && note->divides)
        dim = Dim{dim_name(*note), dim.size / attr_int(attrs, note->attr)};
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
