#include "plan/verify/follower.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/program/bucket_kernels.h"
#include "plan/program/contributions.h"
#include "plan/program/kernel_desc.h"

namespace tenon {
namespace {

std::string shape_of(const std::vector<int64_t>& dims) { return fmt::format("[{}]", fmt::join(dims, " ")); }

}  // namespace

Follower::Follower(const Program& program, Following& shared)
    : program_(program),
      shared_(shared),
      forms_(shared.forms),
      expected_(shared.expected),
      memory_(shared.forms) {}

// -- before the step --------------------------------------------------------------------------------

Status Follower::open() {
  TENON_CHECK(place_inputs());
  for (const TensorInfo& param : program_.params) {
    const auto it = expected_.params.find(param.name);
    if (it == expected_.params.end())
      return refuse("V007", fmt::format("the model has no parameter '{}'", param.name),
                    program_.name + " program");
    const Value& value = *it->second.value;
    const bool same = param.init.kind == value.init.kind && param.init.scale == value.init.scale;
    if (!same)
      return refuse("V007", fmt::format("'{}' starts as the model does not say", param.name), param.name);
    TENON_CHECK(place_tensor(param, param_print(param.name), value, value.dtype));
  }
  for (const TensorInfo& state : program_.states) {
    if (state.layout >= program_.layouts.size() || state.leaf >= program_.layouts[state.layout].leaves.size())
      return refuse("V007", fmt::format("'{}' is in no bucket", state.name), state.name);
    const uint32_t param = program_.layouts[state.layout].leaves[state.leaf].param;
    if (param >= program_.params.size())
      return refuse("V007", "a bucket has a parameter that is not there", state.name);
    const Expected::Param& expected = expected_.params.at(program_.params[param].name);
    const StateSlot* slot = nullptr;
    if (expected.slots != nullptr) {
      for (const StateSlot& one : *expected.slots) {
        if (state.name == state_name(program_.params[param].name, shared_.reference.optimizer, one))
          slot = &one;
      }
    }
    if (state.copy || program_.params[param].copy)
      return refuse("V007", fmt::format("'{}' is not with the parameter's owner", state.name), state.name);
    if (slot == nullptr || state.init.kind != Init::Kind::zeros)
      return refuse("V007", fmt::format("'{}' is no state that starts as zeros", state.name), state.name);
    TENON_CHECK(place_tensor(state, state_print(state.name), *expected.value, slot->dtype));
  }
  return {};
}

// What the feeder fills: samples over the axes of the batch, their tokens over those of the sequence.
Status Follower::place_inputs() {
  const auto& known = shared_.reference.joint->inputs;
  const auto wrong = [&](const std::string& what) {
    return refuse("V007", what, program_.name + " program, inputs");
  };
  if (program_.inputs.size() != static_cast<size_t>(shared_.reference.microbatches) ||
      program_.microbatches != shared_.reference.microbatches)
    return wrong("has inputs of another number of microbatches");
  for (size_t mb = 0; mb < program_.inputs.size(); ++mb) {
    if (program_.inputs[mb].size() != known.size()) return wrong("has other inputs than the model");
    for (const auto& [name, operand] : program_.inputs[mb]) {
      const auto it = known.find(name);
      if (it == known.end() || operand.buffer >= program_.buffers.size())
        return wrong("has other inputs than the model");
      const Value& value = shared_.reference.joint->graph.value(it->second);
      Form form = form_of(value.dtype, {});
      for (size_t d = 0; d < value.dims.size(); ++d)
        form.dims.push_back({value.dims[d].size, d == 0 ? program_.batch_axes : program_.seq_axes, 0, 1});
      if (!forms_.sound(form)) return wrong(fmt::format("'{}' is not cut into equal parts", name));
      const FormId id = forms_.id(form);
      if (operand.dtype != value.dtype || operand.dims != forms_.local(id))
        return wrong(fmt::format("'{}' is {}, where {} is filled", name, shape_of(operand.dims),
                                 shape_of(forms_.local(id))));
      const int32_t of = name == "step" ? kOfAll : static_cast<int32_t>(mb);
      memory_.write(range(operand), {input_print(name, static_cast<int64_t>(mb)), id, {}, nullptr, of});
    }
  }
  for (size_t mb = 0; mb < program_.inputs.size(); ++mb) {
    for (const auto& [name, operand] : program_.inputs[mb]) {
      if (memory_.read(range(operand)).print != input_print(name, static_cast<int64_t>(mb)))
        return wrong(fmt::format("'{}' is filled over", name));
    }
  }
  return {};
}

// What initialisation, or a checkpoint, puts there.
Status Follower::place_tensor(const TensorInfo& info, const Print& print, const Value& value, Dtype dtype) {
  const auto wrong = [&](const std::string& what) {
    return refuse("V007", fmt::format("'{}' {}", info.name, what), program_.name + " program");
  };
  if (info.layout >= program_.layouts.size() || info.leaf >= program_.layouts[info.layout].leaves.size() ||
      info.operand.buffer >= program_.buffers.size())
    return wrong("is in no bucket");
  const FlatLayout& layout = program_.layouts[info.layout];
  const Form form = form_of(info.operand.dtype, info.dims, info.placement);
  const bool fits = info.dims == value.dims && info.placement.dims.size() == info.dims.size() &&
                    info.placement.partials.empty() && info.operand.dtype == dtype && forms_.sound(form);
  if (!fits) return wrong("has other dims or another dtype than the model says");
  const FormId id = forms_.id(form);
  const FlatLayout::Leaf& leaf = layout.leaves[info.leaf];
  const auto size = static_cast<uint64_t>(size_of(dtype));
  const auto at = static_cast<uint64_t>(leaf.first) * size;
  if (forms_.local(id) != info.operand.dims || info.operand.elements() != leaf.count)
    return wrong("is not in its bucket as a whole");
  const Content content{print, id, {}, nullptr, kOfAll};
  const Buffer& buffer = program_.buffers[info.operand.buffer];
  if (info.depth == 0) {
    if (info.operand.offset != at || at + forms_.bytes(id) > buffer.bytes)
      return wrong("is not where its bucket has it");
    memory_.write(range(info.operand), content);
    return {};
  }
  if (info.depth > layout.depth() || info.operand.offset != 0) return wrong("is cut more than its bucket");
  Operand all = info.operand;
  all.dims = {most_at(program_.mesh, layout, info.depth)};
  if (all.bytes() > buffer.bytes) return wrong("is larger than its memory");
  const Content before = memory_.read(range(all));
  auto parts = std::make_shared<Parts>();
  if (before.parts != nullptr) *parts = *before.parts;
  parts->layout = static_cast<int32_t>(info.layout);
  parts->depth = info.depth;
  parts->bytes = all.bytes();
  parts->leaves.resize(layout.leaves.size());
  for (size_t l = 0; l < layout.leaves.size(); ++l)
    parts->leaves[l].first = static_cast<uint64_t>(layout.leaves[l].first) * size;
  parts->leaves[info.leaf].second = content;
  memory_.write(range(all), {{}, kNone, {}, std::move(parts)});
  return {};
}

// -- behind the step --------------------------------------------------------------------------------

Status Follower::check_tensor(const TensorInfo& info, const Print& print) const {
  const FlatLayout& layout = program_.layouts[info.layout];
  Content found;
  if (info.depth == 0) {
    found = memory_.read(range(info.operand));
  } else {
    Operand all = info.operand;
    all.dims = {most_at(program_.mesh, layout, info.depth)};
    const Content part = memory_.read(range(all));
    const bool cut = part.parts != nullptr && part.parts->layout == static_cast<int32_t>(info.layout) &&
                     part.parts->depth == info.depth && part.parts->block.n == 0;
    if (cut) found = part.parts->leaves[info.leaf].second;
  }
  const Form form = form_of(info.operand.dtype, info.dims, info.placement);
  const bool form_fits = found.form != kNone && forms_[found.form] == form;
  if (form_fits && found.print == print) return {};
  const bool untouched = form_fits && found.print == param_print(info.name);
  return refuse("V007",
                untouched
                    ? fmt::format("'{}' is not brought up to date on every rank that holds it", info.name)
                    : fmt::format("'{}' is not what the model makes of it", info.name),
                fmt::format("{} program, behind the step, '{}'", program_.name, info.name));
}

Status Follower::finish() const {
  for (const auto& [name, print] : expected_.outputs) {
    const auto it = program_.outputs.find(name);
    const std::string place = fmt::format("{} program, output {}", program_.name, name);
    if (it == program_.outputs.end()) return refuse("V007", "is not there", place);
    const auto found = whole(it->second);
    if (!found.ok()) return refuse("V007", found.error().cause, place);
    if (!forms_[found->form].placement().is_replicated()) {
      return refuse("V007", fmt::format("'{}' is {}", name, forms_.text(found->form)), place);
    }
    if (found->print != print)
      return refuse("V007", fmt::format("'{}' is not what the model makes", name), place);
  }
  for (const TensorInfo& param : program_.params)
    TENON_CHECK(check_tensor(param, expected_.params.at(param.name).after));
  const auto scale = expected_.outputs.find("scale");
  for (const TensorInfo& state : program_.states) {
    const std::string& name = program_.params[program_.layouts[state.layout].leaves[state.leaf].param].name;
    const Expected::Param& param = expected_.params.at(name);
    if (scale == expected_.outputs.end()) return refuse("V007", "has state, but does not train", state.name);
    TENON_CHECK(check_tensor(
        state, update_print(state.name, param.group, param.grad, state_print(state.name), scale->second)));
  }
  return {};
}

// -- instructions -----------------------------------------------------------------------------------

Status Follower::run() {
  for (InstrId id = 0; id < program_.instrs.size(); ++id) {
    Status status = step(id);
    if (!status.ok()) {
      Error error = std::move(status).error();
      return error.place.empty() ? refuse("V007", error.cause, where(program_, id)) : error;
    }
    if (suspecting_ && !suspected_) note(id);
  }
  return {};
}

Status Follower::step(InstrId id) {
  using Handler = Status (Follower::*)(const Instr&);
  static const std::map<std::string_view, Handler> kHandlers{
      {"add", &Follower::add},
      {"slice", &Follower::slice},
      {"concat", &Follower::concat},
      {"zeros", &Follower::zeros},
      {"sum", &Follower::sum},
      {"clip_scale", &Follower::clip_scale},
      {"attention", &Follower::attention},
      {"attention_dgrad", &Follower::attention},
      {"attention_merge", &Follower::attention_merge},
      {"cross_entropy_shard", &Follower::cross_entropy_shard},
      {"cross_entropy_join", &Follower::cross_entropy_join},
      {"norms", &Follower::norms},
      {"own_part", &Follower::own_part},
      {"stats", &Follower::stats},
      {"update", &Follower::update},
  };
  const Instr& instr = program_.instrs[id];
  TENON_CHECK(check_kernels(instr));
  if (instr.workspace.buffer != kNone) memory_.write(range(instr.workspace), Content{});
  const TransferKind kind = transfer_of(instr);
  if (kind != TransferKind::none) return transfer(instr, kind);
  if (instr.kind != "update") TENON_CHECK(check_target(instr));
  const OpDef* def = find_kind(instr.kind);
  const bool accumulates = def != nullptr && std::ranges::count(def->out, true, &OperandDef::accumulates) > 0;
  if (instr.accumulate && !accumulates) return refused("accumulates, which its kind cannot");
  const auto handler = kHandlers.find(instr.kind);
  return handler != kHandlers.end() ? (this->*handler->second)(instr) : kernel(instr);
}

// The plugin was asked for each kernel behind an instruction, and has the workspace that it said it needs;
// and only what works on buckets is told of one.
Status Follower::check_kernels(const Instr& instr) const {
  const TransferKind kind = transfer_of(instr);
  const bool buckets = is_optimizers(instr) || instr.kind == "norms" || instr.kind == "own_part" ||
                       kind == TransferKind::all_gather || kind == TransferKind::reduce_scatter;
  if (instr.layout >= 0 && !buckets) return refused("is told of a bucket, which its kind does not know");
  if (kind != TransferKind::none || is_optimizers(instr)) {
    return instr.workspace.buffer == kNone ? Status()
                                           : refused("has a workspace, which its kind does not use");
  }
  if (!shared_.reference.workspaces || (buckets && layout_of(instr) == nullptr)) return {};
  uint64_t bytes = 0;
  std::vector<Instr> storage;
  for (const Instr& one : kernels_of(program_, instr, std::nullopt, storage)) {
    const auto known = shared_.reference.workspaces->find(kernel_key(one, 0));
    if (known == shared_.reference.workspaces->end())
      return refused("needs a kernel that the plugin was not asked for");
    bytes = std::max(bytes, known->second);
  }
  const uint64_t has = instr.workspace.buffer == kNone ? 0 : instr.workspace.bytes();
  return has >= bytes ? Status() : refused(fmt::format("has {} bytes of workspace and needs {}", has, bytes));
}

Status Follower::check_target(const Instr& instr) const {
  for (const Operand& out : instr.out) {
    const Space space = program_.buffers[out.buffer].space;
    if (space == Space::arena) continue;
    return refused(fmt::format("writes to the {} '{}', which only an update may", name_of(space), out.name));
  }
  return {};
}

Result<Content> Follower::whole(const Operand& operand) const {
  const Content content = memory_.read(range(operand));
  if (content.form == kNone)
    return refused(fmt::format("'{}' is not a value that is known as a whole there", operand.name));
  const Form& form = forms_[content.form];
  if (form.dtype != operand.dtype || forms_.local(content.form) != operand.dims) {
    return refused(fmt::format("'{}' is read as {} {}, and what is there is {} {}", operand.name,
                               name_of(operand.dtype), shape_of(operand.dims), name_of(form.dtype),
                               shape_of(forms_.local(content.form))));
  }
  return content;
}

Status Follower::write(const Operand& operand, const Content& content) {
  const bool fits = content.form == kNone || (forms_[content.form].dtype == operand.dtype &&
                                              memory_.bytes_of(content) == operand.bytes());
  if (!fits) return refused(fmt::format("'{}' has other bytes than what is written there", operand.name));
  memory_.write(range(operand), content);
  return {};
}

// Compares with the reference's value of that name: only a name links the two, so this proves nothing.
void Follower::note(InstrId id) {
  const Instr& instr = program_.instrs[id];
  if (instr.microbatch < 0 || instr.accumulate || instr.kind == "add") return;
  auto it = named_.find(instr.microbatch);
  if (it == named_.end()) {
    named_.clear();  // programs go from one to the next
    it = named_.emplace(instr.microbatch, values_of(shared_.reference, instr.microbatch)).first;
  }
  for (const Operand& out : instr.out) {
    const auto value = it->second.find(out.name);
    const Content found = memory_.read(range(out));
    const bool differs = value != it->second.end() && found.form != kNone && forms_[found.form].plain() &&
                         found.print != value->second;
    if (differs) suspected_ = id;
  }
}

// -- kernels ----------------------------------------------------------------------------------------

Status Follower::kernel(const Instr& instr) {
  KernelCall call{instr.kind, instr.attrs, instr.axes, instr.offset_step, {}, {}};
  for (const Operand& operand : instr.in) {
    TENON_TRY(Content content, whole(operand));
    call.in.push_back(std::move(content));
  }
  for (const Operand& operand : instr.out) call.out.push_back(&operand);
  TENON_TRY(std::vector<Content> made, shared_.kernels.run(call));
  for (size_t k = 0; k < made.size(); ++k) {
    if (adds_into(instr, k)) {
      TENON_TRY(const Content before, whole(instr.out[k]));
      if (shared_.reference.exact && before.microbatch != made[k].microbatch)
        return refused("adds microbatches up within a kernel, which exact mode does by sums of their own");
      TENON_TRY(made[k], shared_.transfers.added(before, made[k]));
    }
    TENON_CHECK(write(instr.out[k], made[k]));
  }
  return {};
}

// Of values, or of the memory of whole buckets, leaf by leaf.
Status Follower::add(const Instr& instr) {
  if (instr.in.size() != 2 || instr.out.size() != 1 || !instr.attrs.empty())
    return refused("has another number of operands than its kind");
  const Operand &x = instr.in[0], &y = instr.in[1], &z = instr.out[0];
  if (x.dims != y.dims || x.dims != z.dims || x.dtype != y.dtype || x.dtype != z.dtype)
    return refused("adds operands of different dims");
  const auto added = [&](const Content& one, const Content& other) -> Result<Content> {
    const auto wrong = [&](FormId form) { return form != kNone && forms_[form].dtype != x.dtype; };
    const auto wrong_leaf = [&](const auto& leaf) { return wrong(leaf.second.form); };
    if (wrong(one.form) || (one.parts && std::ranges::any_of(one.parts->leaves, wrong_leaf)))
      return refused(fmt::format("'{}' is of another dtype", x.name));
    return shared_.transfers.added(one, other);
  };
  const Content a = memory_.read(range(x)), b = memory_.read(range(y));
  if (a.known() && b.known()) {
    TENON_TRY(const Content made, added(a, b));
    memory_.write(range(z), made);
    return {};
  }
  Memory::Pieces pieces = memory_.pieces(range(x));
  const Memory::Pieces others = memory_.pieces(range(y));
  TENON_CHECK(change_each(pieces, [&](const ByteRange& piece, const Content& content) -> Result<Content> {
    const auto at = [&](const auto& one) { return one.first.lo == piece.lo && one.first.hi == piece.hi; };
    const auto other = std::ranges::find_if(others, at);
    if (other == others.end()) return refused("adds buckets whose leaves lie elsewhere");
    return added(content, other->second);
  }));
  memory_.write(range(z), pieces);
  return {};
}

// A copy; one of equal parts of a dim; or each rank its own.
Status Follower::slice(const Instr& instr) {
  if (instr.in.size() != 1 || instr.out.size() != 1)
    return refused("has another number of operands than its kind");
  const Operand &from = instr.in[0], &to = instr.out[0];
  const int64_t dim = attr_int(instr.attrs, "dim", -1), start = attr_int(instr.attrs, "start", -1),
                size = attr_int(instr.attrs, "size", -1);
  const bool fits = instr.attrs.size() == 3 && dim >= 0 && static_cast<size_t>(dim) < from.dims.size() &&
                    from.dims.size() == to.dims.size() && size > 0 && start >= 0 && from.dtype == to.dtype;
  if (!fits) return refused("its attributes do not fit its operands");
  std::vector<int64_t> dims = from.dims;
  dims[static_cast<size_t>(dim)] = size;
  if (to.dims != dims) return refused("its attributes do not fit its operands");
  const int64_t extent = from.dims[static_cast<size_t>(dim)];
  if (instr.axes.empty() && instr.offset_step == 0 && start == 0 && size == extent) {
    const Content content = memory_.read(range(from));
    if (content.known())
      memory_.write(range(to), content);
    else
      memory_.write(range(to), memory_.pieces(range(from)));
    return {};
  }
  TENON_TRY(const Content content, whole(from));
  Form form = forms_[content.form];
  DimForm& cut = form.dims[static_cast<size_t>(dim)];
  if (!form.plain() || extent % size != 0) return refused("takes what is no whole part of a value");
  if (instr.axes.empty()) {
    if (instr.offset_step != 0 || start % size != 0 || start + size > extent)
      return refused("takes what is no whole part of a value");
    cut.index = start / size;
    cut.of = extent / size;
  } else {
    if (start != 0 || instr.offset_step != size || size * program_.mesh.size(instr.axes) != extent)
      return refused("takes what is no rank's own part of a value");
    cut.axes.insert(cut.axes.end(), instr.axes.begin(), instr.axes.end());
    if (!forms_.sound(form)) return refused("cuts a value twice by one axis");
  }
  Content made = content;
  made.form = forms_.id(form);
  return write(to, made);
}

Status Follower::concat(const Instr& instr) {
  const int64_t dim = attr_int(instr.attrs, "dim", -1), n = static_cast<int64_t>(instr.in.size());
  if (instr.out.size() != 1 || n == 0 || instr.attrs.size() != 1 || dim < 0)
    return refused("has another number of operands than its kind");
  const Operand& to = instr.out[0];
  Content first;
  for (int64_t i = 0; i < n; ++i) {
    TENON_TRY(const Content content, whole(instr.in[static_cast<size_t>(i)]));
    if (i == 0) first = content;
    Form form = forms_[content.form];
    if (static_cast<size_t>(dim) >= form.dims.size() || form.dims.size() != to.dims.size())
      return refused("its attributes do not fit its operands");
    DimForm& cut = form.dims[static_cast<size_t>(dim)];
    if (content.print != first.print || (n > 1 && (cut.of != n || cut.index != i)))
      return refused(fmt::format("joins what are not the {} parts of a value in their order", n));
    cut.index = 0;
    if (!(form == forms_[first.form])) return refused("joins parts of different values");
  }
  Form form = forms_[first.form];
  if (n > 1) form.dims[static_cast<size_t>(dim)].of = 1;
  first.form = forms_.id(form);
  if (forms_.local(first.form) != to.dims)
    return refused("its result has dims that its operands do not make");
  return write(to, first);
}

Status Follower::zeros(const Instr& instr) {
  if (!instr.in.empty() || instr.out.size() != 1)
    return refused("has another number of operands than its kind");
  const Operand& out = instr.out[0];
  Form form = form_of(out.dtype, {});
  for (int64_t size : out.dims) form.dims.push_back({size, {}, 0, 1});
  return write(out, {zeros_print(), forms_.id(form), {}, nullptr, kOfAll});
}

// Of the squares of all gradients: numbers, or one for each chunk.
Status Follower::sum(const Instr& instr) {
  if (instr.in.size() != 1 || instr.out.size() != 1)
    return refused("has another number of operands than its kind");
  const Operand &in = instr.in[0], &out = instr.out[0];
  if (in.dtype != Dtype::f64 || out.dtype != Dtype::f64 || !out.dims.empty())
    return refused("its operands have another dtype than its kind");
  Print total;
  for (const auto& [piece, content] : memory_.pieces(range(in))) {
    if (content.form == kNone) return refused(fmt::format("'{}' is not known as a whole", in.name));
    const Form& form = forms_[content.form];
    if (!form.partials.empty())
      return refused(fmt::format("squares are not summed over {}, over which their gradients are cut",
                                 forms_.names(form.partials)));
    if (!form.plain() || form.dtype != Dtype::f64 || !form.placement().is_replicated())
      return refused(fmt::format("'{}' has squares that are {}", in.name, forms_.text(content.form)));
    total = total + content.print;
  }
  return write(out, {total, forms_.id(form_of(Dtype::f64, {})), {}, nullptr});
}

Status Follower::clip_scale(const Instr& instr) {
  const OpDef& def = *find_kind("clip_scale");
  if (instr.in.size() < 2 || instr.out.size() != def.out.size() || instr.attrs.size() != 1 ||
      !instr.attrs.contains("clip"))
    return refused("has another number of operands than its kind");
  Print squares, count;
  for (size_t i = 0; i < instr.in.size(); ++i) {
    TENON_TRY(const Content content, whole(instr.in[i]));
    const Form& form = forms_[content.form];
    const bool last = i + 1 == instr.in.size();
    if (!form.partials.empty())
      return refused(
          fmt::format("'{}' is not summed over {}", instr.in[i].name, forms_.names(form.partials)));
    if (!form.plain() || !form.placement().is_replicated() || form.dtype != (last ? Dtype::i64 : Dtype::f64))
      return refused(fmt::format("'{}' is {}", instr.in[i].name, forms_.text(content.form)));
    (last ? count : squares) = last ? content.print : squares + content.print;
  }
  if (squares != expected_.squares) return refused("the norm is not that of every gradient, each once");
  if (count != expected_.outputs.at("count"))
    return refused("the count is not that of all tokens, each once");
  const Print in[] = {squares, count};
  for (size_t k = 0; k < instr.out.size(); ++k) {
    if (!instr.out[k].dims.empty()) return refused("its results are numbers");
    const FormId form = forms_.id(form_of(Dtype::f64, {}));
    TENON_CHECK(write(instr.out[k], {print_of(def, instr.attrs, in, k, {}, false), form, {}, nullptr}));
  }
  return {};
}

// Over all keys, or over the block of them that is here just now: then each result is that of one block.
Status Follower::attention(const Instr& instr) {
  const OpDef& def = *find_kind(instr.kind);
  if (instr.in.size() != def.in.size()) return refused("has another number of operands than its kind");
  const auto of = [&](const char* name) { return memory_.read(range(instr.in[def.input(name)])); };
  const Content k = of("k");
  if (k.form == kNone || forms_[k.form].dims.size() < 2 || forms_[k.form].dims[1].axes.empty())
    return kernel(instr);
  const std::vector<AxisId> axes = forms_[k.form].dims[1].axes;
  const int64_t shift = forms_[k.form].shift;
  const bool forward = instr.kind == "attention";
  const OpDef& ring = *find_kind(forward ? "attention_ring" : "attention_ring_dgrad");
  KernelCall call{ring.kind, instr.attrs, instr.axes, instr.offset_step, {}, {}};
  for (size_t i = 0; i < instr.in.size(); ++i) {
    TENON_TRY(Content content, whole(instr.in[i]));
    Form form = forms_[content.form];
    const std::string& name = def.in[i].name;
    const bool travels = name == "k" || name == "v" || name == "kpos";
    if (travels ? form.shift != shift || form.dims[1].axes != axes : form.shift != 0)
      return refused(fmt::format("'{}' is of another block of keys", instr.in[i].name));
    form.shift = 0;  // the op that exchanges itself sees the block at home
    form.ring.clear();
    content.form = forms_.id(form);
    call.in.push_back(std::move(content));
  }
  for (const Operand& operand : instr.out) call.out.push_back(&operand);
  TENON_TRY(std::vector<Content> made, shared_.kernels.run(call));
  for (size_t o = 0; o < made.size(); ++o) {
    Form form = forms_[made[o].form];
    form.blocks = axes;
    const bool travels = def.out[o].name == "dk" || def.out[o].name == "dv";
    if (travels && shift != 0) {
      form.shift = shift;
      form.ring = axes;
    }
    made[o].form = forms_.id(form);
    made[o].blocks = block_print(shift);
    TENON_CHECK(write(instr.out[o], made[o]));
  }
  return {};
}

// What there is over some blocks, and over others; or a copy.
Status Follower::attention_merge(const Instr& instr) {
  if (instr.in.size() != 2 || instr.out.size() != 2)
    return refused("has another number of operands than its kind");
  std::vector<Content> in, before;
  for (size_t i = 0; i < 2; ++i) {
    TENON_TRY(Content part, whole(instr.in[i]));
    in.push_back(std::move(part));
    if (instr.in[i].dims != instr.out[i].dims) return refused("merges operands of different dims");
    if (!instr.accumulate) continue;
    TENON_TRY(Content there, whole(instr.out[i]));
    before.push_back(std::move(there));
  }
  if (in[0].blocks != in[1].blocks) return refused("merges o of some blocks with lse of others");
  if (instr.accumulate && before[0].blocks != before[1].blocks)
    return refused("merges into o of some blocks and lse of others");
  for (size_t i = 0; i < 2; ++i) {
    if (forms_[in[i].form].blocks.empty()) return refused("merges what is over all blocks already");
    if (instr.accumulate) {
      if (before[i].form != in[i].form) return refused("merges blocks of two different values");
      TENON_TRY(in[i], shared_.transfers.added(before[i], in[i]));
    }
    TENON_CHECK(write(instr.out[i], in[i]));
  }
  return {};
}

// A rank's shard of the vocabulary: its part of a list with one entry for each shard, and its addend of what
// the targets have.
Status Follower::cross_entropy_shard(const Instr& instr) {
  const OpDef& def = *find_kind("cross_entropy_shard");
  if (instr.in.size() != 2 || instr.out.size() != 2 || instr.attrs.size() != 1 ||
      attr_int(instr.attrs, "start", -1) != 0)
    return refused("has another number of operands than its kind");
  TENON_TRY(const Content logits, whole(instr.in[0]));
  TENON_TRY(const Content targets, whole(instr.in[1]));
  const Form &x = forms_[logits.form], &t = forms_[targets.form];
  const bool fits = x.plain() && t.plain() && x.partials.empty() && t.partials.empty() &&
                    x.dims.size() == 3 && t.dims.size() == 2 && x.dims[0] == t.dims[0] &&
                    x.dims[1] == t.dims[1] && x.dtype == expected_.real && t.dtype == Dtype::i32;
  if (!fits) return refused("its operands do not fit each other");
  const std::vector<AxisId>& axes = x.dims[2].axes;
  if (axes.empty() || instr.axes != axes || instr.offset_step != forms_.local(logits.form)[2] ||
      !std::ranges::is_sorted(axes))
    return refused("its place is not that of its shard of the vocabulary");
  const Print in[] = {logits.print, targets.print};
  const Form part = form_of(x.dtype, {{program_.mesh.size(axes), axes, 0, 1}, t.dims[0], t.dims[1]});
  Form picked = form_of(x.dtype, {t.dims[0], t.dims[1]});
  picked.partials = axes;
  for (const Operand& out : instr.out) {
    if (out.dims != forms_.local(targets.form))
      return refused("its results have other dims than its targets");
  }
  const int32_t of = joint_microbatch(logits.microbatch, targets.microbatch);
  TENON_CHECK(write(instr.out[0], {print_of(def, {}, in, 0, {}, false), forms_.id(part), {}, nullptr, of}));
  return write(instr.out[1], {print_of(def, {}, in, 1, {}, false), forms_.id(picked), {}, nullptr, of});
}

Status Follower::cross_entropy_join(const Instr& instr) {
  const Content parts = instr.in.empty() ? Content{} : memory_.read(range(instr.in[0]));
  if (parts.form == kNone || forms_[parts.form].dims.empty() || !forms_[parts.form].dims[0].axes.empty())
    return refused("joins what are not the parts of all shards of the vocabulary");
  return kernel(instr);
}

}  // namespace tenon
