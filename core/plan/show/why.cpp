#include "plan/show/why.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "graph/ops.h"
#include "plan/show/sentences.h"
#include "plan/show/spans.h"
#include "plan/show/transfer_cost.h"

namespace tenon {
namespace {

const char* phase_word(Phase phase) {
  switch (phase) {
    case Phase::forward: return "forward";
    case Phase::input_grad: return "gradient of an input";
    case Phase::weight_grad: return "gradient of a weight";
    case Phase::step: return "update, once per step";
  }
  return "";
}

std::string operand_text(const Operand& operand) {
  return fmt::format("{} {}[{}]", operand.name, name_of(operand.dtype), fmt::join(operand.dims, " "));
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
      out_.what += " over " + program_.mesh.names(instr_.axes);
    if (moves()) out_.what += ", on lane " + program_.lanes[instr_.lane];
    out_.when = phase_word(instr_.phase);
    if (instr_.microbatch >= 0) out_.when += fmt::format(", microbatch {}", instr_.microbatch);
    out_.stage = stage_here();
    if (program_.pipeline_axis != kNone && instr_.microbatch >= 0)
      out_.when += fmt::format(", stage {}", out_.stage);
    const Operand& shown = instr_.out.empty() ? instr_.in.front() : instr_.out.front();
    out_.value = operand_text(shown);
  }

  int stage_here() const {
    if (instr_.why.because != Why::Because::stage) return instr_.stage;
    const bool sends = transfer_of(instr_) == TransferKind::send;
    return sends ? graph_.op(instr_.why.op).stage : instr_.why.stage;
  }

  void cost(const Machine& machine) {
    out_.bytes = bytes_of(instr_);
    out_.flops = instr_.flops;
    out_.seconds = seconds_of(program_, instr_, machine);
    if (!moves()) return;
    TransferCost cost = cost_of_transfer(program_, instr_);
    out_.sends = static_cast<uint64_t>(std::llround(cost.sends));
    out_.formula = std::move(cost.told);
  }

  void explain() {
    const Why& why = instr_.why;
    switch (why.because) {
      case Why::Because::op: return explain_op(graph_.op(why.op));
      case Why::Because::fold: return explain_fold();
      case Why::Because::gradient: return explain_gradient();
      case Why::Because::gather: return explain_gather();
      case Why::Because::norm: return explain_norm();
      case Why::Because::stats: return explain_stats();
      case Why::Because::update: return explain_update();
      case Why::Because::stage: return explain_stage();
      case Why::Because::tied:
      case Why::Because::updated: return explain_tied();
      case Why::Because::output: return explain_output();
    }
  }

  // -- ops of the graph -----------------------------------------------------------------------------

  void name_op(const Op& op) {
    out_.op = op_text(graph_, op);
    out_.place = source_.place(op.pointer);
    out_.layer = op.layer;
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
    const Value& value = graph_.value(graph_.made(reason.value));
    const Op& asks = graph_.op(reason.reader == kNone ? value.producer : reason.reader);
    name_op(asks);
    out_.rule = rule_text(*asks.def);
    if (!moves())
      out_.because = fmt::format("a part of {} over {}: ", op.def->kind, program_.mesh.names(op.axes));
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
    if (!instr_.fused.empty() || (instr_.axes.empty() && op.substituted_by.empty())) return;
    out_.rule = rule_text(*op.def);
    if (moves())
      explain_exchange(op);
    else if (const auto cut = cut_operand(op))
      out_.because = fmt::format("each rank has a shard over {}: its operand '{}' is {}", axes_text(),
                                 shown_name(graph_, *cut), placement_text(graph_, program_.mesh, *cut));
    for (AxisId axis : instr_.axes) {
      for (ValueId id : op.in) {
        if (graph_.value(id).placement.sharded_dim(axis)) involve(origin_of(id, axis));
      }
    }
    const std::string& by =
        op.gradient_of == kNone ? op.substituted_by : graph_.op(op.gradient_of).substituted_by;
    if (!by.empty()) involve(by, fmt::format("made it {}", op.def->kind));
  }

  // The first operand that is cut by an axis of this instruction.
  std::optional<ValueId> cut_operand(const Op& op) const {
    const auto it = std::ranges::find_if(op.in, [this](ValueId id) {
      return std::ranges::any_of(
          instr_.axes, [&](AxisId axis) { return graph_.value(id).placement.sharded_dim(axis).has_value(); });
    });
    return it == op.in.end() ? std::nullopt : std::optional(*it);
  }

  // What an op exchanges of its own is a block of an operand, of which every rank comes to see all, or a
  // share of a result. Its name begins with the value's.
  void explain_exchange(const Op& op) {
    std::vector<ValueId> ids = op.in;
    ids.insert(ids.end(), op.out.begin(), op.out.end());
    std::erase_if(ids, [&](ValueId id) {
      return !(instr_.out.front().name + ".").starts_with(graph_.value(id).name + ".");
    });
    if (ids.empty()) return;
    const auto length = [&](ValueId id) { return graph_.value(id).name.size(); };
    const ValueId id = *std::ranges::max_element(ids, {}, length);
    const bool reads = std::ranges::count(op.in, id) > 0;
    const Value& value = graph_.value(id);
    Placement other = value.placement;  // of all that a rank sees, or of the shares
    for (AxisId axis : instr_.axes) {
      for (auto& dim : other.dims) std::erase(dim, axis);
      if (!reads) other.add_partial(axis, Reduction::sum);
    }
    out_.had = text(reads ? value.placement : other, value.dims, program_.mesh);
    out_.wanted = text(reads ? other : value.placement, value.dims, program_.mesh);
    out_.because =
        fmt::format("{} exchanges itself over {}: each rank has a {} '{}'", op.def->kind, axes_text(),
                    reads ? "block, and sees all in turn, of its operand" : "share of its result",
                    shown_name(graph_, id));
  }

  // -- what emission adds ---------------------------------------------------------------------------

  std::string axes_text() const { return program_.mesh.names(instr_.axes); }

  // How what a bucket holds, as a flat tensor, is over the axes of this instruction: "P@dp", "S(0)@dp", "R".
  std::string sums() const {
    Placement out{{{}}, {}};
    for (AxisId axis : instr_.axes) out.add_partial(axis, Reduction::sum);
    return text(out, {}, program_.mesh);
  }
  std::string parts() const { return text(Placement{{instr_.axes}, {}}, {}, program_.mesh); }

  // The parameters of the bucket of the reason's value.
  struct Bucket {
    const FlatLayout* layout = nullptr;
    std::string text;  // "'a' to 'b' (8 parameters)"
  };

  Bucket bucket_of(ValueId param) const {
    const Value& first = graph_.value(param);
    const auto info = std::ranges::find(program_.params, first.name, &TensorInfo::name);
    Bucket out{&program_.layouts[info->layout], fmt::format("'{}'", first.name)};
    const auto& leaves = out.layout->leaves;
    if (leaves.size() > 1)
      out.text = fmt::format("'{}' to '{}' ({} parameters)", first.name,
                             program_.params[leaves.back().param].name, leaves.size());
    return out;
  }

  Bucket name_bucket() {
    out_.place = source_.place(graph_.value(instr_.why.value).pointer);
    return bucket_of(instr_.why.value);
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

  void involve_storage() { involve_storage(instr_.why.value); }
  void involve_storage(ValueId param) {
    const Storage& storage = graph_.value(param).storage;
    if (storage.level == 0) return;
    static constexpr const char* kWhat[] = {"", "optimizer state", "optimizer state and gradients",
                                            "optimizer state, gradients and parameters"};
    involve(storage.by, fmt::format("cuts {} over {} (stage {})", kWhat[storage.level],
                                    program_.mesh.names(storage.axes), storage.level));
  }

  void explain_gradient() {
    const Bucket bucket = name_bucket();
    const ValueId grad = gradient_value();
    const bool cut = cut_here(*bucket.layout);
    if (instr_.axes.empty()) {
      out_.because = fmt::format("a part of the reduction of the gradients of {}", bucket.text);
    } else {
      out_.had = sums();
      out_.wanted = cut ? parts() : "R";
      out_.because =
          fmt::format("the gradients of {} are partial sums over {}, and the update takes none{}",
                      bucket.text, axes_text(), cut ? "; each rank needs the part that it updates" : "");
    }
    out_.op = "update: " + bucket.text;
    out_.rule = rule_text(*find_op("update"));
    for (AxisId axis : instr_.axes) involve(origin_of(grad, axis));
    if (cut) involve_storage();
  }

  void explain_gather() {
    const Bucket bucket = name_bucket();
    out_.op = "what reads " + bucket.text;
    out_.had = parts();
    out_.wanted = "R";
    out_.because = fmt::format("{} rest in parts over {}, and the ops that read them need the whole",
                               bucket.text, axes_text());
    involve_storage();
  }

  void explain_update() {
    const Bucket bucket = name_bucket();
    out_.op = "update: " + bucket.text;
    if (moves()) {
      out_.had = parts();
      out_.wanted = "R";
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
    out_.had = sums();
    out_.wanted = "R";
    if (instr_.why.value == kNone) {
      out_.because = "each stage has the squares of its own gradients, and the norm is of all";
      return involve_pipeline();
    }
    out_.because =
        fmt::format("each rank has the squares of its part of the gradients of {}, and the norm is of all",
                    involve_measured("norms"));
  }

  void explain_stats() {
    out_.op = "update: " + name_bucket().text;
    out_.because = "the optimizer's step takes sums over each parameter";
    if (!moves()) return;
    out_.had = sums();
    out_.wanted = "R";
    out_.because = fmt::format(
        "each rank has the optimizer's sums over its part of {}, and the update takes those over all",
        involve_measured("stats"));
  }

  // The buckets whose numbers this instruction sums: one for each strategy that makes it. `kind` left these
  // numbers there.
  std::string involve_measured(const char* kind) {
    out_.place = source_.place(graph_.value(instr_.why.value).pointer);
    std::string named;
    const std::vector<ValueId> buckets = measured_buckets(kind);
    size_t count = 0;
    for (ValueId param : buckets) {
      const size_t known = out_.strategies.size();
      const Bucket bucket = bucket_of(param);
      for (AxisId axis : instr_.axes) involve(origin_of(param, axis));
      if (cut_here(*bucket.layout)) involve_storage(param);
      if (!named.empty() && out_.strategies.size() == known) continue;
      named += (named.empty() ? "" : ", of ") + bucket.text;
      ++count;
    }
    return count < buckets.size() ? named + " and their like" : named;
  }

  // Their first parameters: kernels left the numbers in what this instruction moves. A step of exact mode's
  // sum moves copies, of which it knows the first bucket alone.
  std::vector<ValueId> measured_buckets(const char* kind) const {
    std::vector<ValueId> out;
    const Operand& moved = moved_operand(instr_);
    for (const Instr& other : program_.instrs) {
      if (other.kind != kind) continue;
      const Operand& left = other.out.front();
      if (left.buffer == moved.buffer && left.offset >= moved.offset &&
          left.offset < moved.offset + moved.bytes())
        out.push_back(other.why.value);
    }
    return out.empty() ? std::vector{instr_.why.value} : out;
  }

  void involve_pipeline() {
    involve(graph_.pipeline_by,
            fmt::format("puts ops on stages over {}", program_.mesh.axes[graph_.pipeline].name));
  }

  // NULL: none.
  const Op* reader_on(int stage, ValueId value) const {
    const auto reads = [&](const Op& op) {
      return op.stage == stage && op.phase != Phase::step && std::ranges::count(op.in, value) > 0;
    };
    const auto found = std::ranges::find_if(graph_.ops(), reads);
    return found == graph_.ops().end() ? nullptr : &*found;
  }

  void explain_stage() {
    const Value& value = graph_.value(graph_.made(instr_.why.value));
    const Op& maker = graph_.op(instr_.why.op);
    out_.value =
        fmt::format("{} {}{}, here {}", value.name, name_of(value.dtype), text(value.dims), shape_here());
    const Op* reader = reader_on(instr_.why.stage, instr_.why.value);
    std::string through;  // a collective wants nothing for itself
    for (const Op* next = reader; next != nullptr && next->reason != kNone;) {
      through += fmt::format(", by way of {}", next->def->kind);
      next = reader_on(instr_.why.stage, next->out[0]);
      if (next != nullptr) reader = next;
    }
    name_op(*reader);
    const std::string placement = placement_text(graph_, program_.mesh, instr_.why.value);
    out_.had = fmt::format("{} on stage {}", placement, maker.stage);
    out_.wanted = fmt::format("{} on stage {}", placement, reader->stage);
    out_.because = fmt::format("{} on stage {} reads it{}, and {} on stage {} makes it", reader->def->kind,
                               reader->stage, through, maker.def->kind, maker.stage);
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
    const bool sends = transfer_of(instr_) == TransferKind::send;
    const std::string& axis = program_.mesh.axes[program_.pipeline_axis].name;
    out_.had = fmt::format("on {} {}", axis, sends ? program_.class_index : instr_.peer);
    out_.wanted = fmt::format("on {} {}", axis, sends ? instr_.peer : program_.class_index);
    involve_pipeline();
  }

  void explain_output() {
    const Value& value = graph_.value(graph_.made(instr_.why.value));
    const Op& maker = graph_.op(value.producer);
    name_op(maker);
    const std::string placement = placement_text(graph_, program_.mesh, instr_.why.value);
    out_.had = fmt::format("{} on stage {}", placement, maker.stage);
    out_.wanted = placement + " on every stage";
    out_.because = fmt::format("every rank is told '{}', which one stage makes", value.name);
    involve_pipeline();
  }

  void explain_fold() {
    const ValueId id = graph_.made(instr_.why.value);
    const Value& value = graph_.value(id);
    const bool gradients = value.role == Role::param;
    std::string of = fmt::format("'{}'", value.name);
    if (gradients)
      out_.op = "update: " + (of = name_bucket().text);
    else
      name_op(graph_.op(value.producer));
    out_.because = fmt::format("adds what this microbatch leaves of {}{} to the sum of others",
                               gradients ? "the gradients of " : "", of);
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

}  // namespace

WhyRecord why(const Program& program, InstrId id, const JointGraph& joint, const RecipeSource& source,
              const Machine& machine) {
  return Explainer(program, id, joint, source).run(machine);
}

}  // namespace tenon
