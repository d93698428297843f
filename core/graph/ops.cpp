#include "graph/ops.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "graph/autodiff.h"

namespace tenon {
namespace {

using Ids = std::vector<ValueId>;

// Backward builders. `b.grad(k)` is the gradient of output k; `b.emit` adds an op on the way to the
// input; `b.leaf` adds an op whose outputs add into gradients of parameters.

Status embedding_backward(Backward& b, const Op& op) {
  const Attrs rows{{"rows", b.graph().value(op.in[1]).dims[0].size}};
  return b.leaf("embedding_wgrad", {b.grad(0), op.in[0]}, rows, {op.in[1]});
}

Status layernorm_backward(Backward& b, const Op& op) {
  TENON_CHECK(
      b.leaf("layernorm_wgrad", {b.grad(0), op.in[0], op.out[1], op.out[2]}, {}, {op.in[1], op.in[2]}));
  return b.emit("layernorm_dgrad", {b.grad(0), op.in[0], op.in[1], op.out[1], op.out[2]}, {}, {op.in[0]});
}

Status rmsnorm_backward(Backward& b, const Op& op) {
  TENON_CHECK(b.leaf("rmsnorm_wgrad", {b.grad(0), op.in[0], op.out[1]}, {}, {op.in[1]}));
  return b.emit("rmsnorm_dgrad", {b.grad(0), op.in[0], op.in[1], op.out[1]}, {}, {op.in[0]});
}

Status linear_backward(Backward& b, const Op& op) {
  TENON_CHECK(b.leaf("linear_wgrad", {b.grad(0), op.in[0]}, {}, {op.in[1]}));
  return b.emit("linear_dgrad", {b.grad(0), op.in[1]}, {}, {op.in[0]});
}

Status bias_add_backward(Backward& b, const Op& op) {
  TENON_CHECK(b.leaf("bias_wgrad", {b.grad(0)}, {}, {op.in[1]}));
  b.pass(op.in[0], b.grad(0));
  return {};
}

Status rope_backward(Backward& b, const Op& op) {
  Attrs attrs = op.attrs;
  attrs["inverse"] = int64_t{1} - attr_int(op.attrs, "inverse");
  return b.emit("rope", {b.grad(0), op.in[1]}, attrs, {op.in[0]});
}

Status attention_backward_as(const char* kind, Backward& b, const Op& op) {
  return b.emit(kind, {b.grad(0), op.in[0], op.in[1], op.in[2], op.out[0], op.out[1], op.in[3], op.in[4]},
                op.attrs, {op.in[0], op.in[1], op.in[2]});
}

Status attention_backward(Backward& b, const Op& op) {
  return attention_backward_as("attention_dgrad", b, op);
}

Status attention_ring_backward(Backward& b, const Op& op) {
  return attention_backward_as("attention_ring_dgrad", b, op);
}

Status gelu_backward(Backward& b, const Op& op) {
  return b.emit("gelu_dgrad", {b.grad(0), op.in[0]}, {}, {op.in[0]});
}

Status swiglu_backward(Backward& b, const Op& op) {
  return b.emit("swiglu_dgrad", {b.grad(0), op.in[0], op.in[1]}, {}, {op.in[0], op.in[1]});
}

Status dropout_backward(Backward& b, const Op& op) {
  return b.emit("dropout", {b.grad(0), op.in[1], op.in[2], op.in[3]}, op.attrs, {op.in[0]});
}

Status cross_entropy_backward(Backward& b, const Op& op) {
  return b.emit("cross_entropy_dgrad", {op.in[0], op.in[1], op.out[2]}, {}, {op.in[0]});
}

Status add_backward(Backward& b, const Op& op) {
  b.pass(op.in[0], b.grad(0));
  b.pass(op.in[1], b.grad(0));
  return {};
}

// Only the gate has a gradient; that of the auxiliary loss is added by the op itself, which is why its
// output is no operand of the loss that is differentiated.
Status route_topk_backward(Backward& b, const Op& op) {
  Attrs attrs = op.attrs;
  attrs.erase("capacity");
  attrs.erase("k");
  return b.emit("route_topk_dgrad", {b.grad(0), op.in[0], op.out[1]}, attrs, {op.in[0]});
}

Status dispatch_backward(Backward& b, const Op& op) {
  const Attrs group{{"group", attr_int(op.attrs, "group")}};
  return b.emit("dispatch_dgrad", {b.grad(0), op.in[1], op.in[2]}, group, {op.in[0]});
}

Status combine_backward(Backward& b, const Op& op) {
  return b.emit("combine_dgrad", {b.grad(0), op.in[0], op.in[1], op.in[2], op.in[3]}, op.attrs,
                {op.in[0], op.in[1]});
}

Status grouped_linear_backward(Backward& b, const Op& op) {
  TENON_CHECK(b.leaf("grouped_linear_wgrad", {b.grad(0), op.in[0]}, {}, {op.in[1]}));
  return b.emit("grouped_linear_dgrad", {b.grad(0), op.in[1]}, {}, {op.in[0]});
}

std::vector<OpDef> model_rows() {
  // kind | inputs | outputs | rule | whole | linear | attrs | flops | inplace | accumulates | backward
  return {
      {"embedding", "ids:i w:f", "y:f", "b s, v h -> b s h", "", "1", "", 0, -1, false, embedding_backward,
       "v", "embedding_shard"},
      {"embedding_wgrad", "dy:f ids:i", "dw:f", "b s h, b s -> v=rows h", "", "0", "rows:i", 1, -1, true,
       nullptr, "v", "embedding_shard_wgrad"},
      {"layernorm", "x:f w:f b:f", "y:f mean:f rstd:f", "b s h, h, h -> b s h, b s, b s", "h", "", "eps:f", 8,
       -1, false, layernorm_backward},
      {"layernorm_dgrad", "dy:f x:f w:f mean:f rstd:f", "dx:f", "b s h, b s h, h, b s, b s -> b s h", "h",
       "0", "", 12},
      {"layernorm_wgrad", "dy:f x:f mean:f rstd:f", "dw:f db:f", "b s h, b s h, b s, b s -> h, h", "", "0",
       "", 5, -1, true},
      {"rmsnorm", "x:f w:f", "y:f rstd:f", "b s h, h -> b s h, b s", "h", "", "eps:f", 5, -1, false,
       rmsnorm_backward},
      {"rmsnorm_dgrad", "dy:f x:f w:f rstd:f", "dx:f", "b s h, b s h, h, b s -> b s h", "h", "0", "", 9},
      {"rmsnorm_wgrad", "dy:f x:f rstd:f", "dw:f", "b s h, b s h, b s -> h", "", "0", "", 3, -1, true},
      {"linear", "x:f w:f", "y:f", "b s k.., o.. k.. -> b s o..", "", "0|1", "", 2, -1, false,
       linear_backward},
      {"linear_dgrad", "dy:f w:f", "dx:f", "b s o.., o.. k.. -> b s k..", "", "0|1", "", 2},
      {"linear_wgrad", "dy:f x:f", "dw:f", "b s o.., b s k.. -> o.. k..", "", "0|1", "", 2, -1, true},
      {"bias_add", "x:f b:f", "y:f", "b s o.., o.. -> b s o..", "", "0,1", "", 1, 0, false,
       bias_add_backward},
      {"bias_wgrad", "dy:f", "db:f", "b s o.. -> o..", "", "0", "", 1, -1, true},
      {"rope", "x:f pos:i", "y:f", "b s e.. d, b s -> b s e.. d", "d", "0", "theta:f inverse:i", 6, 0, false,
       rope_backward},
      {"attention", "q:f k:f v:f qpos:i kpos:i", "o:f lse:f",
       "b s g r d, b t g d, b t g d, b s, b t -> b s g r d, b g r s", "t d", "", "scale:f", 2, -1, false,
       attention_backward},
      {"attention_dgrad", "do:f q:f k:f v:f o:f lse:f qpos:i kpos:i", "dq:f dk:f dv:f",
       "b s g r d, b s g r d, b t g d, b t g d, b s g r d, b g r s, b s, b t -> b s g r d, b t g d, b t g d",
       "t d", "0", "scale:f", 5},
      {"attention_ring", "q:f k:f v:f qpos:i kpos:i", "o:f lse:f",
       "b s g r d, b s g d, b s g d, b s, b s -> b s g r d, b g r s", "d", "", "scale:f", 2, -1, false,
       attention_ring_backward},
      {"attention_ring_dgrad", "do:f q:f k:f v:f o:f lse:f qpos:i kpos:i", "dq:f dk:f dv:f",
       "b s g r d, b s g r d, b s g d, b s g d, b s g r d, b g r s, b s, b s -> b s g r d, b s g d, b s g d",
       "d", "0", "scale:f", 5},
      {"gelu", "x:f", "y:f", "b s e.. -> b s e..", "", "", "", 12, -1, false, gelu_backward},
      {"gelu_dgrad", "dy:f x:f", "dx:f", "b s e.., b s e.. -> b s e..", "", "0", "", 20, 0},
      {"swiglu", "gate:f up:f", "y:f", "b s e.., b s e.. -> b s e..", "", "1", "", 8, -1, false,
       swiglu_backward},
      {"swiglu_dgrad", "dy:f gate:f up:f", "dgate:f dup:f", "b s e.., b s e.., b s e.. -> b s e.., b s e..",
       "", "0", "", 12},
      {"dropout", "x:f sample:l pos:i step:l", "y:f", "b s e.., b, b s, -> b s e..", "e", "0", "p:f key:i",
       12, 0, false, dropout_backward},
      {"cross_entropy", "logits:f targets:i", "loss:d count:l lse:f", "b s v, b s -> , , b s", "!v", "", "",
       6, -1, false, cross_entropy_backward},
      {"cross_entropy_dgrad", "logits:f targets:i lse:f", "dlogits:f", "b s v, b s, b s -> b s v", "", "", "",
       6, 0, false, nullptr, "v", "cross_entropy_shard_dgrad"},
      {"add", "x:a y:a", "z:0", "e.., e.. -> e..", "", "0,1", "", 1, 0, false, add_backward},
  };
}

// What a step does once, and what moves between ranks.
std::vector<OpDef> step_rows() {
  return {
      {"sqnorm", "x:f", "sq:d", "e.. -> ", "", "", "", 2},
      {"clip_scale", "sq:d* count:l", "norm:d scale:d", ", -> , ", "", "", "clip:f", 1, -1, false, nullptr,
       "", "", true},
      {"update", "grad:f param:f scale:d", "new:f", "e.., e.., -> e..", "", "", "", 12, 1},
      {"all_reduce", "x:a", "y:0", "e.. -> e..", "", "", "", 0, 0},
      {"reduce_scatter", "x:a", "y:0", "e.. -> e..", "", "", "", 0},
      {"all_gather", "x:a", "y:0", "e.. -> e..", "", "", "", 0},
      {"all_to_all", "x:a", "y:0", "e.. -> e..", "", "", "", 0},
      {"slice", "x:a", "y:0", "e.. -> e..", "", "", "dim:i start:i size:i", 0},
  };
}

// Mixture of experts. Routing looks at whole groups of consecutive tokens, so a group is never cut; the sums
// that move rows are not counted as work.
std::vector<OpDef> expert_rows() {
  return {
      {"route_topk", "logits:f", "gate:f expert:i slot:i aux:d", "b s e -> b s k=k, b s k, b s k, ", "e k",
       "", "k:i group:i capacity:i renormalise:i aux:f", 8, -1, false, route_topk_backward},
      {"route_topk_dgrad", "dgate:f logits:f expert:i", "dlogits:f", "b s k, b s e, b s k -> b s e", "e k",
       "", "group:i renormalise:i aux:f", 10},
      {"dispatch", "x:f expert:i slot:i", "y:f", "b s h, b s k, b s k -> b s/group e=experts c=capacity h",
       "e c k", "0", "group:i experts:i capacity:i", 0, -1, false, dispatch_backward},
      {"dispatch_dgrad", "dy:f expert:i slot:i", "dx:f", "b s/group e c h, b s k, b s k -> b s h", "e c k",
       "0", "group:i", 0},
      {"combine", "y:f gate:f expert:i slot:i", "x:f", "b s/group e c h, b s k, b s k, b s k -> b s h",
       "e c k", "0|1", "group:i", 0, -1, false, combine_backward},
      {"combine_dgrad", "dx:f y:f gate:f expert:i slot:i", "dy:f dgate:f",
       "b s h, b s/group e c h, b s k, b s k, b s k -> b s/group e c h, b s k", "e c k", "0", "group:i", 0},
      {"grouped_linear", "x:f w:f", "y:f", "b n e c k.., e o.. k.. -> b n e c o..", "", "0|1", "", 2, -1,
       false, grouped_linear_backward},
      {"grouped_linear_dgrad", "dy:f w:f", "dx:f", "b n e c o.., e o.. k.. -> b n e c k..", "", "0|1", "", 2},
      {"grouped_linear_wgrad", "dy:f x:f", "dw:f", "b n e c o.., b n e c k.. -> e o.. k..", "", "0|1", "", 2,
       -1, true},
  };
}

std::vector<OpDef> make_table() {
  std::vector<OpDef> table = model_rows();
  for (const auto& more : {step_rows(), expert_rows()}) table.insert(table.end(), more.begin(), more.end());
  for (OpDef& def : table) {
    const auto split = [&def](const char* words, std::vector<std::string>& names, std::string& types) {
      std::stringstream stream(words);
      std::string word;
      while (stream >> word) {
        const size_t colon = word.find(':');
        names.push_back(word.substr(0, colon));
        types += word[colon + 1];
        if (word.ends_with('*')) def.variadic = true;
      }
    };
    split(def.inputs, def.input_names, def.input_types);
    split(def.outputs, def.output_names, def.output_types);
  }
  return table;
}

Dtype resolve(char type, Dtype real, Dtype first) {
  switch (type) {
    case 'd': return Dtype::f64;
    case 'i': return Dtype::i32;
    case 'l': return Dtype::i64;
    case '0':
    case 'a': return first;
    default: return real;
  }
}

Status check_attrs(const OpDef& def, const Attrs& attrs) {
  std::stringstream words(def.attrs);
  std::string word;
  size_t known = 0;
  while (words >> word) {
    const std::string name = word.substr(0, word.find(':'));
    if (!attrs.contains(name)) {
      return Error{"G004", std::string(def.kind) + ": missing attribute '" + name + "'", "", "",
                   TENON_E_RECIPE};
    }
    ++known;
  }
  if (known == attrs.size()) return {};
  for (const auto& [name, value] : attrs) {
    if ((" " + std::string(def.attrs)).find(" " + name + ":") == std::string::npos) {
      return Error{"G004", std::string(def.kind) + ": unknown attribute '" + name + "'", "", "",
                   TENON_E_RECIPE};
    }
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
               std::string("it takes ") + def.inputs + " with shapes " + def.rule, TENON_E_RECIPE};
}

// What a rule says about the size of a dim beyond its factor.
struct SizeNote {
  size_t operand, dim;  // of the inputs or of the outputs
  bool divides;         // s/group; else v=rows
  std::string attr;
};

// The notes of one side of a rule. An operand that has some has no variadic part.
std::vector<SizeNote> size_notes(const std::string& side) {
  std::vector<SizeNote> out;
  std::stringstream operands(side);
  std::string operand;
  for (size_t i = 0; std::getline(operands, operand, ','); ++i) {
    std::stringstream words(operand);
    std::string word;
    for (size_t d = 0; words >> word; ++d) {
      const size_t at = word.find_first_of("/=");
      if (at != std::string::npos) out.push_back({i, d, word[at] == '/', word.substr(at + 1)});
    }
  }
  return out;
}

std::string without_notes(const std::string& rule) {
  std::string out;
  bool inside = false;
  for (char c : rule) {
    inside = (inside && c != ' ' && c != ',') || c == '/' || c == '=';
    if (!inside) out += c;
  }
  return out;
}

// The name of a dim whose size an attribute gives.
std::string dim_of_attr(const std::string& attr) {
  static constexpr std::array<std::pair<const char*, const char*>, 5> kNames{{
      {"rows", "vocab"},
      {"k", "choice"},
      {"group", "routing_group"},
      {"experts", "expert"},
      {"capacity", "slot"},
  }};
  for (const auto& [name, dim] : kNames) {
    if (attr == name) return dim;
  }
  return attr;
}

const SizeNote* find_note(const std::vector<SizeNote>& notes, size_t operand, size_t dim) {
  for (const SizeNote& note : notes) {
    if (note.operand == operand && note.dim == dim) return &note;
  }
  return nullptr;
}

// The notes of a rule, once for its inputs and once for its outputs.
struct SizeNotes {
  std::vector<SizeNote> inputs, outputs;

  explicit SizeNotes(const OpDef& def) {
    const std::string rule = def.rule;
    const size_t arrow = rule.find("->");
    inputs = size_notes(rule.substr(0, arrow));
    outputs = size_notes(rule.substr(arrow + 2));
  }
  Status check(const OpDef& def, const Graph& graph, const Ids& in, const Attrs& attrs) const {
    for (const auto* notes : {&inputs, &outputs}) {
      for (const SizeNote& note : *notes) {
        if (attr_int(attrs, note.attr) > 0) continue;
        return bad_operands(def, graph, in, "attribute '" + note.attr + "' must be at least 1");
      }
    }
    return {};
  }
};

Result<std::vector<size_t>> check_operands(const OpDef& def, const Graph& graph, const Ids& in) {
  const bool right_count =
      def.variadic ? in.size() >= def.input_names.size() : in.size() == def.input_names.size();
  if (!right_count) return bad_operands(def, graph, in, "wrong number of operands");
  std::vector<size_t> ranks;
  for (size_t i = 0; i < in.size(); ++i) {
    const Value& value = graph.value(in[i]);
    const size_t k = def.variadic ? i - std::min(i, in.size() - def.input_names.size()) : i;
    if (value.dtype != resolve(def.input_types[k], graph.real, graph.value(in[0]).dtype)) {
      return bad_operands(def, graph, in, "operand '" + def.input_names[k] + "' is " + name_of(value.dtype));
    }
    ranks.push_back(value.dims.size());
  }
  return ranks;
}

// The dim that each factor stands for: name and size.
Result<Dims> factor_dims(const OpDef& def, const Rule& rule, const SizeNotes& notes, const Graph& graph,
                         const Ids& in, const Attrs& attrs) {
  Dims factors(rule.factors.size(), Dim{"", -1});
  for (size_t i = 0; i < in.size(); ++i) {
    for (size_t d = 0; d < rule.inputs[i].size(); ++d) {
      const Dim& dim = graph.value(in[i]).dims[d];
      const SizeNote* note = find_note(notes.inputs, i, d);
      const int64_t size = dim.size * (note != nullptr ? attr_int(attrs, note->attr) : 1);
      Dim& known = factors[rule.inputs[i][d]];
      if (known.size < 0) known.size = size;
      if (known.name.empty() && note == nullptr) known.name = dim.name;
      if (known.size != size) {
        return bad_operands(def, graph, in,
                            dim.name + " is " + std::to_string(known.size) + " and " + std::to_string(size));
      }
    }
  }
  for (const SizeNote& note : notes.outputs) {
    if (note.divides) continue;
    factors[rule.outputs[note.operand][note.dim]] = Dim{dim_of_attr(note.attr), attr_int(attrs, note.attr)};
  }
  return factors;
}

}  // namespace

std::span<const OpDef> op_table() {
  static const std::vector<OpDef> table = make_table();
  return table;
}

const OpDef* find_op(std::string_view kind) {
  for (const OpDef& def : op_table()) {
    if (kind == def.kind) return &def;
  }
  return nullptr;
}

Result<Rule> rule_of(const OpDef& def, const std::vector<size_t>& input_ranks) {
  std::string rule = def.rule;
  if (def.variadic) {  // the first operand of the rule stands for all but the last input
    const std::string first = rule.substr(0, rule.find(','));
    for (size_t i = def.input_names.size(); i < input_ranks.size(); ++i) rule = first + ", " + rule;
  }
  return instantiate_rule(without_notes(rule), def.whole, def.linear, input_ranks);
}

Result<std::vector<TensorType>> infer_outputs(const OpDef& def, const Graph& graph, const Ids& in,
                                              const Attrs& attrs) {
  TENON_TRY(const std::vector<size_t> ranks, check_operands(def, graph, in));
  TENON_CHECK(check_attrs(def, attrs));
  const auto rule = rule_of(def, ranks);
  if (!rule.ok()) return bad_operands(def, graph, in, "wrong number of dimensions");
  const SizeNotes notes(def);
  TENON_CHECK(notes.check(def, graph, in, attrs));
  TENON_TRY(const Dims factors, factor_dims(def, *rule, notes, graph, in, attrs));
  std::vector<TensorType> out;
  for (size_t k = 0; k < rule->outputs.size(); ++k) {
    TensorType type{resolve(def.output_types[k], graph.real, graph.value(in[0]).dtype), {}};
    for (size_t d = 0; d < rule->outputs[k].size(); ++d) {
      Dim dim = factors[rule->outputs[k][d]];
      const SizeNote* note = find_note(notes.outputs, k, d);
      if (note != nullptr && note->divides) {
        const int64_t parts = attr_int(attrs, note->attr);
        if (dim.size % parts != 0) {
          return bad_operands(def, graph, in,
                              dim.name + " " + std::to_string(dim.size) + " is not divisible by " +
                                  note->attr + " " + std::to_string(parts));
        }
        dim = Dim{dim_of_attr(note->attr), dim.size / parts};
      }
      type.dims.push_back(std::move(dim));
    }
    out.push_back(std::move(type));
  }
  return out;
}

double flops_of(const Graph& graph, const Op& op) {
  const std::vector<size_t> ranks = graph.ranks_of(op.in);
  const auto rule = rule_of(*op.def, ranks);
  if (!rule.ok() || collective_of(*op.def) != Collective::none) return 0;
  std::vector<double> sizes(rule->factors.size(), 1);
  for (size_t i = 0; i < op.in.size(); ++i) {
    for (size_t d = 0; d < ranks[i]; ++d) {
      sizes[rule->inputs[i][d]] = static_cast<double>(graph.value(op.in[i]).dims[d].size);
    }
  }
  double points = op.def->flops;
  for (double size : sizes) points *= size;
  return points;
}

Collective collective_of(const OpDef& def) {
  static constexpr std::array<std::pair<const char*, Collective>, 5> kKinds{{
      {"all_reduce", Collective::all_reduce},
      {"reduce_scatter", Collective::reduce_scatter},
      {"all_gather", Collective::all_gather},
      {"all_to_all", Collective::all_to_all},
      {"slice", Collective::slice},
  }};
  for (const auto& [name, kind] : kKinds) {
    if (std::string_view(def.kind) == name) return kind;
  }
  return Collective::none;
}

}  // namespace tenon
