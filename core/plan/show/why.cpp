#include "plan/show/why.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "graph/ops.h"
#include "plan/show/spans.h"

namespace tenon {
namespace {

std::string axis_names(const Mesh& mesh, const std::vector<AxisId>& axes) {
  std::string out;
  for (AxisId axis : axes) out += (out.empty() ? "" : ",") + mesh.axes[axis].name;
  return out;
}

std::string placement_text(const Graph& graph, const Mesh& mesh, ValueId id) {
  return text(graph.value(id).placement, graph.value(id).dims, mesh);
}

// In the notation of docs/reference/ops.md.
std::string rule_text(const OpDef& def) {
  std::string out = fmt::format("{}: {} -> {}", def.kind, def.inputs, def.outputs);
  if (def.whole[0] != '\0') out += fmt::format("; whole: {}", def.whole);
  if (def.linear[0] != '\0') out += fmt::format("; partial sums: {}", def.linear);
  return out;
}

const char* phase_word(Phase phase) {
  switch (phase) {
    case Phase::forward: return "forward";
    case Phase::input_grad: return "gradient of an input";
    case Phase::weight_grad: return "gradient of a weight";
    case Phase::step: return "update, once per step";
  }
  return "";
}

// "0/y <- 0/x, w"
std::string op_text(const Graph& graph, const Op& op) {
  constexpr size_t kMost = 4;
  const auto list = [&](const std::vector<ValueId>& ids) {
    std::string out;
    for (size_t i = 0; i < ids.size() && i < kMost; ++i)
      out += (i > 0 ? ", " : "") + graph.value(ids[i]).name;
    return ids.size() > kMost ? fmt::format("{}, ... ({} in all)", out, ids.size()) : out;
  };
  return fmt::format("{}: {} <- {}", op.def->kind, list(op.out), list(op.in));
}

std::string operand_text(const Operand& operand) {
  return fmt::format("{} {}[{}]", operand.name, name_of(operand.dtype), fmt::join(operand.dims, " "));
}

// What a rank sends, beside the bytes that it is a share of: a ring, or all members' parts straight.
struct Sent {
  double share;
  const char* formula;
};

Sent sent_of(const Instr& instr, double n) {
  switch (transfer_of(instr)) {
    case TransferKind::send:
    case TransferKind::permute: return {1, "all of it to one rank"};
    case TransferKind::recv: return {0, "nothing: it receives"};
    case TransferKind::all_reduce: return {2 * (n - 1) / n, "2 (n-1)/n of its bytes, n = {}"};
    default: return {(n - 1) / n, "(n-1)/n of its bytes, n = {}"};
  }
}

class Explainer {
 public:
  Explainer(const Program& program, InstrId id, const JointGraph& joint, const RecipeSource& source)
      : program_(program), instr_(program.instrs[id]), joint_(joint), graph_(joint.graph), source_(source) {
    out_.id = id;
  }

  WhyRecord run(const Machine& machine) {
    describe();
    cost(machine);
    explain();
    if (instr_.why.tree)
      out_.because += "; a step of exact mode's sum, whose order does not depend on the number of ranks";
    return std::move(out_);
  }

 private:
  bool moves() const { return is_transfer(instr_); }

  void describe() {
    out_.what = instr_.kind;
    const std::string& axis =
        instr_.axes.empty() ? program_.lanes[0] : program_.mesh.axes[instr_.axes[0]].name;
    const TransferKind kind = transfer_of(instr_);
    if (kind == TransferKind::send)
      out_.what += fmt::format(" to {} {}", axis, instr_.peer);
    else if (kind == TransferKind::recv)
      out_.what += fmt::format(" from {} {}", axis, instr_.peer);
    else if (moves())
      out_.what += " over " + axis_names(program_.mesh, instr_.axes);
    if (moves()) out_.what += ", on lane " + program_.lanes[instr_.lane];
    out_.when = phase_word(instr_.phase);
    if (instr_.microbatch >= 0) out_.when += fmt::format(", microbatch {}", instr_.microbatch);
    if (program_.pipeline_axis != kNone && instr_.microbatch >= 0 &&
        instr_.why.because != Why::Because::stage)
      out_.when += fmt::format(", stage {}", instr_.stage);
    const Operand& shown = instr_.out.empty() ? instr_.in.front() : instr_.out.front();
    out_.value = operand_text(shown);
  }

  void cost(const Machine& machine) {
    out_.bytes = bytes_of(instr_);
    out_.flops = instr_.flops;
    out_.seconds = seconds_of(program_, instr_, machine);
    if (!moves()) return;
    const auto n = static_cast<double>(program_.mesh.size(instr_.axes));
    const Sent sent = sent_of(instr_, n);
    out_.sends = static_cast<uint64_t>(sent.share * static_cast<double>(out_.bytes) + 0.5);
    out_.formula = fmt::format(fmt::runtime(sent.formula), n);
  }

  void explain() {
    const Why& why = instr_.why;
    switch (why.because) {
      case Why::Because::op: return explain_op(graph_.op(why.op));
      case Why::Because::fold: return explain_fold();
      case Why::Because::gradient: return explain_gradient();
      case Why::Because::gather: return explain_gather();
      case Why::Because::norm: return explain_norm();
      case Why::Because::update: return explain_update();
      case Why::Because::stage: return explain_stage();
      case Why::Because::tied: return explain_tied();
      case Why::Because::output: return explain_output();
    }
  }

  // -- ops of the graph -----------------------------------------------------------------------------

  void name_op(const Op& op) {
    out_.op = op_text(graph_, op);
    out_.place = source_.place(op.pointer);
    if (op.layer >= 0) out_.when += fmt::format(", layer {}", op.layer);
  }

  void explain_op(const Op& op) {
    if (op.reason != kNone) return explain_reshard(op, graph_.reasons[op.reason]);
    name_op(op);
    for (const Why& part : instr_.fused) {
      if (part.op != kNone) out_.fused.push_back(with_place(graph_.op(part.op)));
    }
    if (moves() || instr_.kind != op.def->kind) explain_expansion(op);
    if (moves()) return;
    std::string here = op.gradient_of == kNone
                           ? op.phase == Phase::step ? "the optimizer's step" : "an op of the recipe's model"
                           : "the gradient of " + op_text(graph_, graph_.op(op.gradient_of));
    out_.because = here + (out_.because.empty() ? "" : "; ") + out_.because;
  }

  std::string with_place(const Op& op) const {
    const std::string place = source_.place(op.pointer);
    return op_text(graph_, op) + (place.empty() ? "" : fmt::format(" ({})", place));
  }

  void explain_reshard(const Op& op, const Reason& reason) {
    const Value& value = graph_.value(reason.value);
    const Op* reader = reason.reader == kNone ? nullptr : &graph_.op(reason.reader);
    if (reader != nullptr) {
      name_op(*reader);
      out_.rule = rule_text(*reader->def);
    } else if (value.producer != kNone) {
      name_op(graph_.op(value.producer));
    }
    if (!moves())
      out_.because = fmt::format("a part of {} over {}: ", op.def->kind, axis_names(program_.mesh, op.axes));
    out_.value =
        fmt::format("{} {}{}, here {}", value.name, name_of(value.dtype), text(value.dims), shape_here());
    out_.had = text(reason.had, value.dims, program_.mesh);
    out_.wanted = text(reason.wanted, value.dims, program_.mesh);
    out_.because += sentence_of(graph_, program_.mesh, reason);
    involve(reason.had_by);
    involve(reason.wanted_by);
  }

  std::string shape_here() const {
    const Operand& shown = instr_.out.empty() ? instr_.in.front() : instr_.out.front();
    return fmt::format("[{}]", fmt::join(shown.dims, " "));
  }

  // An op that exchanges itself, or a kernel that knows its place on an axis.
  void explain_expansion(const Op& op) {
    const std::vector<AxisId>& axes = instr_.axes;
    if (!instr_.fused.empty() || (axes.empty() && op.substituted_by.empty())) return;
    out_.rule = rule_text(*op.def);
    for (AxisId axis : axes) {
      const auto cut = [&](ValueId id) { return graph_.value(id).placement.sharded_dim(axis).has_value(); };
      const auto it = std::ranges::find_if(op.in, cut);
      if (it == op.in.end()) continue;
      if (out_.had.empty()) {
        out_.had = placement_text(graph_, program_.mesh, *it);
        out_.because =
            fmt::format("{} over {}: its operand '{}' is {}",
                        moves() ? std::string(op.def->kind) + " exchanges itself" : "each rank has a shard",
                        axis_names(program_.mesh, axes), graph_.value(*it).name, out_.had);
      }
      involve(origin_of(*it, axis));
    }
    const std::string& by =
        op.gradient_of == kNone ? op.substituted_by : graph_.op(op.gradient_of).substituted_by;
    if (!by.empty()) involve(by, fmt::format("made it {}", op.def->kind));
  }

  // The value that the model's ops make, behind a collective's.
  const Value& made(ValueId id) const {
    const OpId maker = graph_.value(id).producer;
    const uint32_t reason = maker == kNone ? kNone : graph_.op(maker).reason;
    return graph_.value(reason == kNone ? id : graph_.reasons[reason].value);
  }

  // -- what emission adds ---------------------------------------------------------------------------

  // The parameters of the bucket of the reason's value.
  struct Bucket {
    const FlatLayout* layout = nullptr;
    std::string text;  // "'a' to 'b' (8 parameters)"
  };

  Bucket name_bucket() {
    const Value& first = graph_.value(instr_.why.value);
    const auto info = std::ranges::find(program_.params, first.name, &TensorInfo::name);
    Bucket out{&program_.layouts[info->layout], fmt::format("'{}'", first.name)};
    const auto& leaves = out.layout->leaves;
    if (leaves.size() > 1)
      out.text = fmt::format("'{}' to '{}' ({} parameters)", first.name,
                             program_.params[leaves.back().param].name, leaves.size());
    out_.place = source_.place(first.pointer);
    return out;
  }

  ValueId gradient_value() const {
    const auto it = std::ranges::find(joint_.leaves, instr_.why.value, &LeafGrad::param);
    return it->grad;
  }

  // Whether a layout is cut by the axes of this instruction.
  bool cut_here(const FlatLayout& layout) const {
    return std::ranges::any_of(instr_.axes,
                               [&](AxisId axis) { return std::ranges::count(layout.axes, axis) > 0; });
  }

  void involve_storage() {
    const Storage& storage = graph_.value(instr_.why.value).storage;
    if (storage.level == 0) return;
    static constexpr const char* kWhat[] = {"", "optimizer state", "optimizer state and gradients",
                                            "optimizer state, gradients and parameters"};
    involve(storage.by, fmt::format("cuts {} over {} (stage {})", kWhat[storage.level],
                                    axis_names(program_.mesh, storage.axes), storage.level));
  }

  void explain_gradient() {
    const Bucket bucket = name_bucket();
    const ValueId grad = gradient_value();
    const bool cut = cut_here(*bucket.layout);
    const std::string axes = axis_names(program_.mesh, instr_.axes);
    out_.had = placement_text(graph_, program_.mesh, grad);
    out_.wanted = cut ? fmt::format("sums, in parts over {}", axes) : "sums, whole";
    if (instr_.axes.empty()) {
      out_.because = fmt::format("a part of the reduction of the gradients of {}", bucket.text);
    } else {
      out_.because = fmt::format("the gradients of {} are partial sums over {}, and the update takes none{}",
                                 bucket.text, axes, cut ? "; each rank needs the part that it updates" : "");
    }
    out_.op = "update: " + bucket.text;
    out_.rule = rule_text(*find_op("update"));
    for (AxisId axis : instr_.axes) involve(origin_of(grad, axis));
    if (cut) involve_storage();
  }

  void explain_gather() {
    const Bucket bucket = name_bucket();
    const std::string axes = axis_names(program_.mesh, instr_.axes);
    out_.op = "what reads " + bucket.text;
    out_.had = fmt::format("in parts over {}", axes);
    out_.wanted = fmt::format("whole over {}", axes);
    out_.because =
        fmt::format("{} rest in parts over {}, and the ops that read them need the whole", bucket.text, axes);
    involve_storage();
  }

  void explain_update() {
    const Bucket bucket = name_bucket();
    out_.op = "update: " + bucket.text;
    if (moves()) {
      const std::string axes = axis_names(program_.mesh, instr_.axes);
      out_.had = fmt::format("in parts over {}", axes);
      out_.wanted = fmt::format("whole over {}", axes);
      out_.because =
          fmt::format("each rank has updated its part of {}, and reads the others' parts too", bucket.text);
    } else if (instr_.kind == "own_part") {
      out_.because = fmt::format("each rank updates its part of {}", bucket.text);
    } else {
      out_.because = fmt::format("the optimizer's step for {}", bucket.text);
    }
    if (bucket.layout->depth() > 0) involve_storage();
  }

  void explain_norm() {
    out_.op = "the norm of all gradients, for clipping";
    out_.place = source_.place("/optimizer");
    out_.rule = rule_text(*find_op("clip_scale"));
    out_.because = "the optimizer's step: clip_scale takes the sum of the squares of all gradients";
    if (!moves()) return;
    out_.had = fmt::format("P@{}", axis_names(program_.mesh, instr_.axes));
    out_.wanted = "R";
    if (instr_.why.value == kNone) {
      out_.because = "each stage has the squares of its own gradients, and the norm is of all";
      return involve_pipeline();
    }
    const Bucket bucket = name_bucket();
    out_.because =
        fmt::format("each rank has the squares of its part of the gradients of {}{}, and the norm is of all",
                    bucket.text, bucket.layout->leaves.size() > 1 ? " and their like" : "");
    for (AxisId axis : instr_.axes) involve(origin_of(instr_.why.value, axis));
    if (cut_here(*bucket.layout)) involve_storage();
  }

  void involve_pipeline() {
    involve(graph_.pipeline_by,
            fmt::format("puts ops on stages over {}", program_.mesh.axes[graph_.pipeline].name));
  }

  void explain_stage() {
    const Value& value = graph_.value(instr_.why.value);
    const Op& maker = graph_.op(instr_.why.op);
    out_.value =
        fmt::format("{} {}{}, here {}", value.name, name_of(value.dtype), text(value.dims), shape_here());
    const auto elsewhere = [&](const Op& op) {
      return op.stage != maker.stage && op.phase != Phase::step &&
             std::ranges::count(op.in, instr_.why.value) > 0;
    };
    const auto reader = std::ranges::find_if(graph_.ops(), elsewhere);
    name_op(*reader);
    out_.had = fmt::format("on stage {}", maker.stage);
    out_.wanted = fmt::format("on stage {}", reader->stage);
    out_.because = fmt::format("{} on stage {} reads it, and {} on stage {} makes it", reader->def->kind,
                               reader->stage, maker.def->kind, maker.stage);
    involve_pipeline();
  }

  void explain_tied() {
    const Bucket bucket = name_bucket();
    out_.op = "update: " + bucket.text;
    if (instr_.kind == "add") {
      out_.because = fmt::format("adds the gradient that another stage has of {}", bucket.text);
      return involve_pipeline();
    }
    out_.because = fmt::format(
        "ops of several stages read {}: its gradients are added where the first of them is, and what is "
        "updated "
        "there is handed out",
        bucket.text);
    out_.had = "on one stage";
    out_.wanted = "on another, too";
    involve_pipeline();
  }

  void explain_output() {
    const Value& value = made(instr_.why.value);
    const Op& maker = graph_.op(value.producer);
    name_op(maker);
    out_.had = fmt::format("on stage {}", maker.stage);
    out_.wanted = "on every stage";
    out_.because = fmt::format("every rank is told '{}', which one stage makes", value.name);
    involve_pipeline();
  }

  void explain_fold() {
    const Value& value = graph_.value(instr_.why.value);
    if (value.role == Role::param) name_bucket();
    out_.because = fmt::format("adds what this microbatch leaves of {}'{}' to the sum of others",
                               value.role == Role::param ? "the gradients of " : "", value.name);
  }

  // -- strategies -----------------------------------------------------------------------------------

  Origin origin_of(ValueId id, AxisId axis) const {
    const auto& origins = graph_.value(id).origins;
    const auto it = std::ranges::find(origins, axis, &Origin::axis);
    return it == origins.end() ? Origin{} : *it;
  }

  void involve(const Origin& origin) {
    if (!origin.by.empty()) involve(origin.by, said_by(graph_, program_.mesh, origin));
  }

  void involve(const std::string& id, const std::string& said) {
    const bool known = std::ranges::any_of(
        out_.strategies, [&](const Involved& other) { return other.id == id && other.said == said; });
    if (known) return;
    const auto pointer = source_.strategies.find(id);
    out_.strategies.push_back(
        {id, said, pointer == source_.strategies.end() ? "" : source_.place(pointer->second)});
  }

  const Program& program_;
  const Instr& instr_;
  const JointGraph& joint_;
  const Graph& graph_;
  const RecipeSource& source_;
  WhyRecord out_;
};

Json operands_json(const Program& program, const std::vector<Operand>& operands) {
  Json out = Json::array();
  for (const Operand& operand : operands) {
    const Buffer& buffer = program.buffers[operand.buffer];
    out.push_back({{"name", operand.name},
                   {"dims", operand.dims},
                   {"dtype", name_of(operand.dtype)},
                   {"bytes", operand.bytes()},
                   {"space", name_of(buffer.space)},
                   {"offset", buffer.offset + operand.offset}});
  }
  return out;
}

// -1 stands for none in a program, null in JSON.
Json number_or_null(int number) { return number < 0 ? Json(nullptr) : Json(number); }

}  // namespace

std::string said_by(const Graph& graph, const Mesh& mesh, const Origin& origin) {
  const Value& value = graph.value(origin.pinned);
  const auto pin = std::ranges::find(value.pins, origin.axis, &Pin::axis);
  const std::string& axis = mesh.axes[origin.axis].name;
  if (pin == value.pins.end() || !pin->dim) return fmt::format("wants '{}' whole over {}", value.name, axis);
  return fmt::format("cuts '{}' by {} over {}", value.name, value.dims[*pin->dim].name, axis);
}

std::string sentence_of(const Graph& graph, const Mesh& mesh, const Reason& reason) {
  const std::string reader = reason.reader == kNone ? "" : graph.op(reason.reader).def->kind;
  std::string decider, where;
  if (reason.decider != kNone) {
    decider = graph.value(reason.decider).name;
    where = placement_text(graph, mesh, reason.decider);
  }
  switch (reason.because) {
    case Reason::Because::whole:
      return fmt::format("{} cannot be cut over its factor {}: it needs the whole", reader, reason.factor);
    case Reason::Because::no_partial:
      return fmt::format("{} does not take '{}' as a partial sum", reader, graph.value(reason.value).name);
    case Reason::Because::operand: {
      const auto& in = graph.op(reason.reader).in;
      const bool reads = std::ranges::count(in, reason.decider) > 0;
      const bool stays = graph.value(reason.decider).role == Role::param;
      return fmt::format("{} is cut as its {} '{}' is, {}{}", reader, reads ? "operand" : "result", decider,
                         where, reads && stays ? ": activations come to the weights, not the other way" : "");
    }
    case Reason::Because::as_forward:
      return fmt::format("{} uses a gradient where its forward value '{}' was made, which was {}", reader,
                         decider, where);
    case Reason::Because::in_place:
      return fmt::format("{} overwrites '{}' where that is, {}", reader, decider, where);
    case Reason::Because::accumulation:
      return fmt::format("all ops that add into '{}' agree on its placement, {}", decider, where);
    case Reason::Because::pin: return fmt::format("'{}' is pinned by {}", decider, reason.wanted_by.by);
    case Reason::Because::output:
      return fmt::format("every rank is told '{}'", graph.value(reason.value).name);
  }
  return "";
}

WhyRecord why(const Program& program, InstrId id, const JointGraph& joint, const RecipeSource& source,
              const Machine& machine) {
  return Explainer(program, id, joint, source).run(machine);
}

std::string text(const WhyRecord& record) {
  std::string out = fmt::format("instruction {}: {}\n", record.id, record.what);
  const auto field = [&out](const char* name, const std::string& value) {
    if (!value.empty()) out += fmt::format("  {:<11} {}\n", name, value);
  };
  field("when", record.when);
  field("value", record.value);
  field("op", record.op);
  field("recipe", record.place);
  field("it was", record.had);
  field("wanted", record.wanted);
  field("because", record.because);
  field("rule", record.rule);
  for (const Involved& one : record.strategies)
    field("strategy",
          fmt::format("{} {}{}", one.id, one.said, one.place.empty() ? "" : fmt::format(" ({})", one.place)));
  for (const std::string& part : record.fused) field("fused from", part);
  const std::string sends =
      record.formula.empty() ? "" : fmt::format("; sends {}: {}", record.sends, record.formula);
  field("bytes", fmt::format("{} on each rank{}", record.bytes, sends));
  field("cost", fmt::format("{:.3g} s{}", record.seconds,
                            record.flops > 0 ? fmt::format(", {:.6g} flops", record.flops) : ""));
  return out;
}

Json json_of(const WhyRecord& record) {
  Json out{{"value", record.value},
           {"because", record.because},
           {"bytes", record.bytes},
           {"seconds", record.seconds},
           {"flops", record.flops}};
  const auto field = [&out](const char* name, const std::string& value) {
    if (!value.empty()) out[name] = value;
  };
  field("op", record.op);
  field("place", record.place);
  field("had", record.had);
  field("wanted", record.wanted);
  field("rule", record.rule);
  out["strategies"] = Json::array();
  for (const Involved& one : record.strategies)
    out["strategies"].push_back({{"id", one.id}, {"said", one.said}, {"place", one.place}});
  if (!record.fused.empty()) out["fused"] = record.fused;
  if (!record.formula.empty()) {
    out["sends"] = record.sends;
    out["formula"] = record.formula;
  }
  return out;
}

Json instructions_json(const Program& program, const JointGraph& joint, const RecipeSource& source,
                       const Machine& machine) {
  Json out = Json::array();
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    const Instr& instr = program.instrs[id];
    Json axes = Json::array();
    for (AxisId axis : instr.axes) axes.push_back(program.mesh.axes[axis].name);
    const OpId op = instr.why.op;
    const int layer = op == kNone ? instr.layer : joint.graph.op(op).layer;
    out.push_back({{"number", id},
                   {"lane", program.lanes[instr.lane]},
                   {"kind", instr.kind},
                   {"phase", name_of(instr.phase)},
                   {"transfer", is_transfer(instr)},
                   {"microbatch", number_or_null(instr.microbatch)},
                   {"layer", number_or_null(layer)},
                   {"stage", instr.stage},
                   {"reads", operands_json(program, instr.in)},
                   {"writes", operands_json(program, instr.out)},
                   {"accumulates", instr.accumulate},
                   {"axes", std::move(axes)},
                   {"peer", number_or_null(instr.peer)},
                   {"waits", instr.waits},
                   {"why", json_of(why(program, id, joint, source, machine))}});
  }
  return out;
}

}  // namespace tenon
