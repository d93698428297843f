#include "plan/emit/emitter.h"

#include <algorithm>
#include <utility>

#include "plan/emit/expand.h"
#include "plan/emit/visits.h"

namespace tenon {
namespace {

// Axes of the factor whose shards a kernel must know the place of; empty: not sharded. And its local size.
struct Offset {
  std::vector<AxisId> axes;
  int64_t size = 0;
};

Offset offset_of(const Graph& graph, const Op& op, const std::vector<Operand>& in,
                 const std::vector<Operand>& out) {
  if (op.def->offset[0] == '\0') return Offset{};
  const Rule& rule = *op.rule;
  const auto search = [&](const std::vector<std::vector<int>>& operands, const std::vector<ValueId>& ids,
                          const std::vector<Operand>& local) -> std::optional<Offset> {
    for (size_t i = 0; i < operands.size(); ++i) {
      for (size_t d = 0; d < operands[i].size(); ++d) {
        if (rule.factors[static_cast<size_t>(operands[i][d])].name != op.def->offset) continue;
        return Offset{graph.value(ids[i]).placement.dims[d], local[i].dims[d]};
      }
    }
    return std::nullopt;
  };
  if (const auto found = search(rule.inputs, op.in, in)) return *found;
  return search(rule.outputs, op.out, out).value_or(Offset{});
}

}  // namespace

Emitter::Emitter(const EmitContext& context, int index)
    : scope_(context, index), params_(scope_), gradients_(scope_) {}

Status Emitter::open() {
  TENON_CHECK(params_.open());
  TENON_CHECK(place_inputs());
  count_uses();
  return {};
}

Status Emitter::place_inputs() {
  const std::string step_wide = "step";
  const JointGraph& joint = scope_.context.joint;
  Program& program = scope_.builder.program();
  const Placement& tokens = joint.graph.value(joint.inputs.at("tokens")).placement;
  program.batch_axes = tokens.dims[0];
  program.seq_axes = tokens.dims[1];
  for (int mb = 0; mb < scope_.context.rows.microbatches; ++mb) {
    std::map<std::string, Operand> set;
    for (const auto& [name, id] : joint.inputs) {
      if (mb > 0 && name == step_wide) {
        set[name] = program.inputs[0][name];
        continue;
      }
      TENON_TRY(set[name], scope_.local(id));
      set[name].buffer = scope_.builder.add_buffer(name, Space::input, set[name].bytes());
    }
    program.inputs.push_back(std::move(set));
  }
  return {};
}

void Emitter::count_uses() {
  uses_.assign(scope_.graph().values().size(), 0);
  for (const Op& op : scope_.graph().ops()) {
    if (op.phase == Phase::step || !scope_.owns(op.stage)) continue;
    for (ValueId id : op.in) ++uses_[id];
  }
}

// -- values -----------------------------------------------------------------------------------------

const Operand& Emitter::at(ValueId id, int microbatch) const { return live_.at(key(id, microbatch)).operand; }

Result<Operand> Emitter::expect(ValueId id, int microbatch) {
  TENON_TRY(Operand out, scope_.local(id));
  out.buffer = scope_.builder.add_buffer(out.name, Space::arena, out.bytes());
  live_[key(id, microbatch)] = {out, uses_[id]};
  return out;
}

std::optional<Operand> Emitter::folded(ValueId id) const {
  if (const auto it = step_values_.find(id); it != step_values_.end()) return it->second;
  const auto it = folds_.find(id);
  return it == folds_.end() ? std::nullopt : std::optional(it->second.sum());
}

Result<Operand> Emitter::read(ValueId id, const Row& row) {
  TENON_TRY(const std::optional<Operand> param, params_.read(id, row));
  if (param) return *param;
  const Value& value = scope_.graph().value(id);
  if (value.role == Role::input && value.producer == kNone)
    return scope_.builder.program().inputs[static_cast<size_t>(row.microbatch)].at(value.name);
  const auto it = live_.find(key(id));
  if (it == live_.end()) {
    return Error{"P030",
                 "'" + value.name + "' is not there when stage " + std::to_string(row.stage) + " reads it",
                 std::string(name_of(scope_.context.kind)) + " program", "", TENON_E_INTERNAL};
  }
  return it->second.operand;
}

void Emitter::release(ValueId id) {
  const auto it = live_.find(key(id));
  if (it != live_.end() && it->second.uses <= 0) live_.erase(it);
}

// The memory of a value may be overwritten by its last reader, if nobody else can see it. Who got it from
// another class sends it to nobody.
bool Emitter::can_take_over(ValueId id) const {
  const auto it = live_.find(key(id));
  if (it == live_.end() || it->second.uses != 1 || scope_.context.stages.crossing[id]) return false;
  const OpId maker = scope_.graph().value(id).producer;
  return scope_.context.stages.readers[id].empty() ||
         (maker != kNone && !scope_.owns(scope_.graph().op(maker).stage));
}

// -- rows -------------------------------------------------------------------------------------------

Status Emitter::run(std::span<const Row> rows, const Made& made) {
  params_.enter(rows);
  std::vector<Instr>& instrs = scope_.builder.program().instrs;
  std::vector<std::vector<Instr>> rest(rows.size());  // what the op that a row has begun does to end
  const auto begin = [&](size_t row, OpId id) -> Status {
    scope_.builder.enter(rows[row].stage, rows[row].microbatch);
    const size_t first = instrs.size();
    TENON_CHECK(emit_op(scope_.graph().op(id), rows[row]));
    if (scope_.context.stages.exchanges[id]) rest[row] = cut_behind_transfers(first);
    return {};
  };
  const auto end = [&](size_t row, OpId id) -> Status {
    scope_.builder.enter(rows[row].stage, rows[row].microbatch);
    std::ranges::move(std::exchange(rest[row], {}), std::back_inserter(instrs));
    for (ValueId out : scope_.graph().op(id).out) TENON_CHECK(settle_output(out, made));
    return {};
  };
  return take_turns(scope_.context.stages, rows, begin, end);
}

// What has been emitted behind the last transfer since then, taken out.
std::vector<Instr> Emitter::cut_behind_transfers(size_t first) {
  std::vector<Instr>& instrs = scope_.builder.program().instrs;
  size_t end = instrs.size();
  while (end > first && instrs[end - 1].lane == 0) --end;
  const auto from = instrs.begin() + static_cast<ptrdiff_t>(end);
  std::vector<Instr> out(std::make_move_iterator(from), std::make_move_iterator(instrs.end()));
  instrs.resize(end);
  return out;
}

// What is due as soon as a value is there.
Status Emitter::settle_output(ValueId id, const Made& made) {
  if (gradients_.owns(id)) return gradients_.contributed(id);
  const StagePlan& stages = scope_.context.stages;
  if (stages.crossing[id]) {
    const OpId maker = scope_.graph().value(id).producer;
    const auto because = scope_.builder.because({Why::Because::fold, false, maker, id});
    folds_[id].add(scope_.builder, live_.at(key(id)).operand, scope_.context.options.exact);
  }
  if (!stages.readers[id].empty()) TENON_CHECK(made(id));
  release(id);
  return {};
}

Status Emitter::emit_op(const Op& op, const Row& row) {
  const auto because = scope_.builder.because({Why::Because::op, false, scope_.id_of(op), op.out[0]});
  TENON_CHECK(reshard_of(*op.def) != TransferKind::none ? emit_collective(op, row) : emit_kernel(op, row));
  for (ValueId in : op.in) {
    const auto it = live_.find(key(in));
    if (it == live_.end()) continue;
    --it->second.uses;
    release(in);
  }
  return {};
}

Status Emitter::emit_kernel(const Op& op, const Row& row) {
  ProgramBuilder& builder = scope_.builder;
  const Graph& graph = scope_.graph();
  Instr instr = builder.begin(op.def->kind, op.phase);
  instr.layer = op.layer;
  instr.attrs = op.attrs;
  for (ValueId id : op.in) {
    TENON_TRY(Operand operand, read(id, row));
    instr.in.push_back(std::move(operand));
  }
  for (size_t k = 0; k < op.out.size(); ++k) TENON_CHECK(bind_output(op, k, instr));
  instr.flops = scope_.context.flops[scope_.id_of(op)] / static_cast<double>(scope_.context.work_share);
  builder.program().flops += instr.flops;
  if (const Expansion* expansion = find_expansion(op.def->kind)) {
    const std::vector<AxisId> axes = expansion->axes(graph, op);
    expansion->emit(builder, std::move(instr), axes);
    return {};
  }
  const Offset offset = offset_of(graph, op, instr.in, instr.out);
  if (!offset.axes.empty()) {
    instr.kind = op.def->shard_kind;
    instr.attrs = part_attrs(*find_kind(op.def->shard_kind), op.attrs);
    instr.axes = offset.axes;
    instr.offset_step = offset.size;
  }
  builder.push(std::move(instr));
  return {};
}

Status Emitter::bind_output(const Op& op, size_t k, Instr& instr) {
  const ValueId id = op.out[k];
  if (gradients_.owns(id)) return gradients_.bind(id, instr);
  TENON_TRY(Operand operand, scope_.local(id));
  const auto source = op.def->inplace_input < 0 ? size_t{0} : static_cast<size_t>(op.def->inplace_input);
  if (k == 0 && op.def->inplace_input >= 0 && can_take_over(op.in[source]) &&
      operand.bytes() == instr.in[source].bytes()) {
    operand.buffer = instr.in[source].buffer;
    operand.offset = instr.in[source].offset;
    instr.inplace = op.def->inplace_input;
  } else {
    operand.buffer = scope_.builder.add_buffer(operand.name, Space::arena, operand.bytes());
  }
  live_[key(id)] = {operand, uses_[id]};
  instr.out.push_back(std::move(operand));
  return {};
}

Status Emitter::emit_collective(const Op& op, const Row& row) {
  TENON_TRY(const Operand in, read(op.in[0], row));
  TENON_TRY(Operand out, scope_.local(op.out[0]));
  if (reshard_of(*op.def) == TransferKind::all_reduce && can_take_over(op.in[0])) {
    out.buffer = in.buffer;
    out.offset = in.offset;
  } else {
    out.buffer = scope_.builder.add_buffer(out.name, Space::arena, out.bytes());
  }
  live_[key(op.out[0])] = {out, uses_[op.out[0]]};
  scope_.reshard(op, in, out);
  return {};
}

Status Emitter::emit_step_op(const Op& op) {
  const auto in = folded(op.in[0]);
  if (!in) return {};  // a gradient's, which Gradients reduces
  TENON_TRY(step_values_[op.out[0]], scope_.reshard_once(op, *in));
  return {};
}

}  // namespace tenon
