#include "plan/verify/kernel_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "plan/verify/checks.h"

namespace tenon {
namespace {

// The op whose shards are run by kernels of this kind.
const OpDef* op_of_shard(std::string_view kind) {
  const auto it = std::ranges::find_if(op_table(), [&](const OpDef& def) { return kind == def.shard_kind; });
  return it == op_table().end() ? nullptr : &*it;
}

const SizeNote* note_of(const std::vector<SizeNote>& notes, size_t operand, size_t dim) {
  for (const SizeNote& note : notes) {
    if (note.operand == operand && note.dim == dim) return &note;
  }
  return nullptr;
}

// Every attribute that a kind takes, and no other but those of the graph's op.
Status check_attrs(const OpDef& kind, const OpDef& op, const Attrs& attrs) {
  for (const AttrDef& attr : kind.attr_defs) {
    if (!attr.of_graph && !attrs.contains(attr.name))
      return refused(fmt::format("lacks the attribute '{}'", attr.name));
  }
  for (const auto& [name, value] : attrs) {
    const bool known = std::ranges::count(kind.attr_defs, name, &AttrDef::name) > 0 ||
                       std::ranges::count(op.attr_defs, name, &AttrDef::name) > 0;
    if (!known) return refused(fmt::format("has an attribute '{}', which its kind lacks", name));
  }
  return {};
}

Print print_of_parts(const OpDef& def, const Attrs& attrs, std::span<const Print> in, size_t k,
                     bool ordered) {
  std::map<std::string, Print> there;
  for (size_t i = 0; i < in.size(); ++i) there[def.in[i].name] = in[i];
  for (const PartDef& part : def.made_of) {
    std::vector<Print> operands;
    for (const std::string& name : part.in) operands.push_back(there.at(name));
    for (size_t o = 0; o < part.out.size(); ++o)
      there[part.out[o]] = print_of(*find_kind(part.kind), attrs, operands, o, {}, ordered);
  }
  return there.at(def.out[k].name);
}

}  // namespace

std::vector<size_t> free_dims(const Rule& rule, size_t k) {
  std::vector<size_t> out;
  for (size_t d = 0; d < rule.outputs[k].size(); ++d) {
    const bool given = std::ranges::any_of(rule.inputs, [&](const std::vector<int>& operand) {
      return std::ranges::count(operand, rule.outputs[k][d]) > 0;
    });
    if (!given) out.push_back(d);
  }
  return out;
}

Print print_of(const OpDef& def, const Attrs& attrs, std::span<const Print> in, size_t k,
               std::span<const int64_t> free, bool ordered) {
  if (std::string_view(def.kind) == "add") return plus(in[0], in[1], ordered);
  if (def.computes[0] != '\0') return print_of(*find_op(def.computes), attrs, in, k, free, ordered);
  if (def.use == OpUse::graph && !def.made_of.empty()) return print_of_parts(def, attrs, in, k, ordered);
  PrintHash hash(def.kind);
  for (const AttrDef& attr : def.attr_defs) {
    if (attr.of_graph || attr.name == "start") continue;
    const auto it = attrs.find(attr.name);
    if (it != attrs.end()) hash.add(attr.name).add(it->second);
  }
  hash.add(in.size());
  for (const Print& print : in) hash.add(print);
  hash.add(k);
  for (int64_t size : free) hash.add(static_cast<uint64_t>(size));
  return hash.print();
}

Result<std::vector<Content>> KernelRules::run(const KernelCall& call) {
  const OpDef* kind = find_kind(call.kind);
  if (kind != nullptr && kind->use == OpUse::fused) return run_parts(call, *kind);
  const Typed& typed = type(call);
  if (!typed.refused.empty()) return refused(typed.refused);
  std::vector<Print> in;
  int32_t of = kOfAll;
  for (const Content& content : call.in) {
    in.push_back(content.print);
    of = joint_microbatch(of, content.microbatch);
  }
  std::vector<Content> out(typed.out.size());
  for (size_t k = 0; k < out.size(); ++k)
    out[k] = {
        print_of(*typed.def, call.attrs, in, k, typed.free[k], ordered_), typed.out[k], {}, nullptr, of};
  return out;
}

// What each part makes; values between parts have no memory.
Result<std::vector<Content>> KernelRules::run_parts(const KernelCall& call, const OpDef& fused) {
  if (call.in.size() != fused.in.size() || call.out.size() != fused.out.size())
    return refused("has another number of operands than its kind");
  if (!call.axes.empty() || call.offset_step != 0)
    return refused("has a place on axes, which its kind lacks");
  std::map<std::string, Content> there;
  for (size_t i = 0; i < call.in.size(); ++i) there[fused.in[i].name] = call.in[i];
  TENON_CHECK(check_attrs(fused, fused, call.attrs));
  for (const PartDef& part : fused.made_of) {
    const OpDef& kind = *find_kind(part.kind);
    Attrs attrs;
    for (const AttrDef& attr : kind.attr_defs) {
      const auto it = call.attrs.find(attr.name);
      if (it != call.attrs.end()) attrs.insert(*it);
    }
    KernelCall one{kind.kind, attrs, call.axes, 0, {}, {}};
    for (const std::string& name : part.in) one.in.push_back(there.at(name));
    for (const std::string& name : part.out) {
      const auto k = find_operand(fused.out, name);
      one.out.push_back(k ? call.out[*k] : nullptr);
    }
    TENON_TRY(const std::vector<Content> made, run(one));
    for (size_t k = 0; k < made.size(); ++k) there[part.out[k]] = made[k];
  }
  std::vector<Content> out;
  for (const OperandDef& operand : fused.out) out.push_back(there.at(operand.name));
  return out;
}

const KernelRules::Typed& KernelRules::type(const KernelCall& call) {
  std::string key(call.kind);
  const auto word = [&key](int64_t n) { key.append(reinterpret_cast<const char*>(&n), sizeof n); };
  key += '\0';
  for (const auto& [name, value] : call.attrs) {
    key += name;
    key += '\0';
    const auto* whole = std::get_if<int64_t>(&value);
    word(whole != nullptr ? *whole : std::bit_cast<int64_t>(std::get<double>(value)));
  }
  word(call.offset_step);
  word(static_cast<int64_t>(call.axes.size()));
  for (AxisId axis : call.axes) word(static_cast<int64_t>(axis));
  word(static_cast<int64_t>(call.in.size()));
  for (const Content& content : call.in) word(content.parts ? -2 : static_cast<int64_t>(content.form));
  for (const Operand* out : call.out) {
    word(out == nullptr ? -1 : static_cast<int64_t>(out->dims.size()));
    if (out == nullptr) continue;
    word(static_cast<int64_t>(out->dtype));
    for (int64_t size : out->dims) word(size);
  }
  const auto [it, fresh] = known_.try_emplace(std::move(key));
  if (fresh) {
    Status status = fill(call, it->second);
    if (!status.ok()) it->second.refused = std::move(status).error().cause;
  }
  return it->second;
}

Result<const OpDef*> KernelRules::find_def(const KernelCall& call) const {
  const OpDef* kind = find_kind(call.kind);
  const bool runs = kind != nullptr && (kind->runner == OpRunner::kernel || kind->computes[0] != '\0');
  if (!runs) return refused(fmt::format("no rule says what a kernel '{}' computes", call.kind));
  const OpDef* of_shard = op_of_shard(call.kind);
  const OpDef* def = of_shard != nullptr ? of_shard : kind;
  TENON_CHECK(check_attrs(*kind, *def, call.attrs));
  if (def->variadic || call.in.size() != def->in.size() || call.out.size() != def->out.size())
    return refused("has another number of operands than its kind");
  for (const Content& content : call.in) {
    if (content.form == kNone || !forms_[content.form].plain())
      return refused("reads what is not a whole value");
  }
  return def;
}

Status KernelRules::fill(const KernelCall& call, Typed& typed) const {
  TENON_TRY(typed.def, find_def(call));
  const OpDef& def = *typed.def;
  std::vector<size_t> ranks;
  std::vector<Placement> given;
  for (const Content& content : call.in) {
    ranks.push_back(forms_[content.form].dims.size());
    given.push_back(forms_[content.form].placement());
  }
  const auto rule = rule_of(def, ranks);
  if (!rule.ok()) return refused("its operands have another number of dims than its kind");
  std::vector<std::optional<Placement>> wanted(rule->outputs.size());
  for (size_t k = 0; k < wanted.size() && !call.axes.empty(); ++k) {
    wanted[k] = Placement::replicated(rule->outputs[k].size());
    for (size_t d = 0; d < rule->outputs[k].size(); ++d) {
      if (rule->factors[static_cast<size_t>(rule->outputs[k][d])].name == def.offset)
        wanted[k]->dims[d] = call.axes;
    }
  }
  const Typing typing = type_op(*rule, given, wanted);
  TENON_CHECK(check_inputs(call, def, *rule, typing));
  TENON_CHECK(check_offset(call, def, *rule, typing));
  return size_outputs(call, def, *rule, typing, typed);
}

Dtype KernelRules::dtype_of(OperandDef::Type type, const KernelCall& call) const {
  switch (type) {
    case OperandDef::Type::f64: return Dtype::f64;
    case OperandDef::Type::i32: return Dtype::i32;
    case OperandDef::Type::i64: return Dtype::i64;
    case OperandDef::Type::any: return forms_[call.in[0].form].dtype;
    case OperandDef::Type::real: break;
  }
  return real_;
}

Status KernelRules::check_inputs(const KernelCall& call, const OpDef& def, const Rule& rule,
                                 const Typing& typing) const {
  for (size_t i = 0; i < call.in.size(); ++i) {
    const Form& form = forms_[call.in[i].form];
    const std::string& name = def.in[i].name;
    if (form.dtype != dtype_of(def.in[i].type, call))
      return refused(fmt::format("its operand '{}' is {}", name, name_of(form.dtype)));
    for (size_t d = 0; d < form.dims.size(); ++d) {
      const Rule::Factor& factor = rule.factors[static_cast<size_t>(rule.inputs[i][d])];
      if (factor.kind == Rule::Kind::exchange && !form.dims[d].axes.empty())
        return refused(fmt::format("its operand '{}' is cut over {}, and a kernel exchanges nothing", name,
                                   forms_.names(form.dims[d].axes)));
    }
    if (typing.inputs[i] == form.placement()) continue;
    std::vector<AxisId> owed;
    for (AxisId axis : form.partials) {
      if (!typing.inputs[i].is_partial(axis)) owed.push_back(axis);
    }
    if (!owed.empty())
      return refused(fmt::format("its operand '{}' is not summed over {}", name, forms_.names(owed)));
    Dims dims;
    for (size_t d = 0; d < form.dims.size(); ++d) dims.push_back({std::to_string(d), form.dims[d].size});
    return refused(fmt::format("its operand '{}' is {}, and the others want it {}", name,
                               forms_.text(call.in[i].form), text(typing.inputs[i], dims, forms_.mesh())));
  }
  return {};
}

// A cut over the factor whose shards need a kernel of their own, and that kernel, come together.
Status KernelRules::check_offset(const KernelCall& call, const OpDef& def, const Rule& rule,
                                 const Typing& typing) const {
  std::vector<AxisId> cut;
  int64_t size = 0;
  const auto look = [&](const std::vector<std::vector<int>>& operands,
                        const std::vector<Placement>& placements, auto local) {
    for (size_t i = 0; i < operands.size(); ++i) {
      for (size_t d = 0; d < operands[i].size(); ++d) {
        if (def.offset[0] == '\0' || rule.factors[static_cast<size_t>(operands[i][d])].name != def.offset)
          continue;
        cut = placements[i].dims[d];
        size = local(i, d);
      }
    }
  };
  look(rule.outputs, typing.outputs, [&](size_t k, size_t d) {
    const Operand* out = call.out[k];
    return out != nullptr && d < out->dims.size() ? out->dims[d] : int64_t{0};
  });
  look(rule.inputs, typing.inputs, [&](size_t i, size_t d) { return forms_.local(call.in[i].form)[d]; });
  const bool shard = call.kind != std::string_view(def.kind);
  if (cut.empty() && !shard && call.axes.empty() && call.offset_step == 0) return {};
  if (!cut.empty() && shard && call.axes == cut && call.offset_step == size &&
      attr_int(call.attrs, "start") == 0)
    return {};
  return refused(fmt::format("is of kind '{}' with its place on '{}', where its operands are cut over '{}'",
                             call.kind, forms_.names(call.axes), forms_.names(cut)));
}

Status KernelRules::size_outputs(const KernelCall& call, const OpDef& def, const Rule& rule,
                                 const Typing& typing, Typed& typed) const {
  std::vector<int64_t> sizes(rule.factors.size(), -1);
  for (size_t i = 0; i < call.in.size(); ++i) {
    const Form& form = forms_[call.in[i].form];
    for (size_t d = 0; d < form.dims.size(); ++d) {
      const SizeNote* note = note_of(def.in_notes, i, d);
      const int64_t size = form.dims[d].size * (note != nullptr ? attr_int(call.attrs, note->attr) : 1);
      int64_t& known = sizes[static_cast<size_t>(rule.inputs[i][d])];
      if (known >= 0 && known != size) return refused("its operands' dims do not fit each other");
      known = size;
    }
  }
  for (size_t k = 0; k < rule.outputs.size(); ++k) {
    Form form = form_of(dtype_of(def.out[k].type, call), {});
    const Operand* out = call.out[k];
    const std::vector<size_t> free = free_dims(rule, k);
    if (out != nullptr && (out->dims.size() != rule.outputs[k].size() || out->dtype != form.dtype))
      return refused(
          fmt::format("its result '{}' has other dims or another dtype than its kind makes", out->name));
    for (size_t d = 0; d < rule.outputs[k].size(); ++d) {
      const SizeNote* note = note_of(def.out_notes, k, d);
      int64_t size = sizes[static_cast<size_t>(rule.outputs[k][d])];
      const int64_t parts = note != nullptr && note->divides ? attr_int(call.attrs, note->attr) : 1;
      if (size >= 0 && (parts <= 0 || size % parts != 0))
        return refused("its attributes do not fit its operands");
      if (size >= 0) size /= parts;
      const int64_t told =
          out == nullptr ? size : out->dims[d] * forms_.mesh().size(typing.outputs[k].dims[d]);
      if (told < 0 || (size >= 0 && told != size))
        return refused(fmt::format("its result '{}' has dims that its operands do not make",
                                   out == nullptr ? def.out[k].name : out->name.get()));
      form.dims.push_back({told, typing.outputs[k].dims[d], 0, 1});
    }
    for (const Partial& partial : typing.outputs[k].partials) form.partials.push_back(partial.axis);
    if (!forms_.sound(form)) return refused("its results are cut into parts that are not equal");
    std::vector<int64_t>& told = typed.free.emplace_back();
    for (size_t d : free) told.push_back(form.dims[d].size);
    typed.out.push_back(forms_.id(form));
  }
  return {};
}

}  // namespace tenon
