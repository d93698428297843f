#include "run/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <set>
#include <span>

#include "base/clock.h"
#include "plan/program/bucket_kernels.h"

namespace tenon {
namespace {

constexpr tenon_stream kCpuStream{{kDLCPU, 0}, nullptr};
constexpr unsigned char kPoison = 0xA5;

// How many elements each member has in a transfer; empty: what the operands say is the same for all.
std::vector<uint64_t> counts_of(const Program& program, const Instr& instr, TransferKind kind, int64_t rank) {
  if (instr.layout >= 0) {
    const FlatLayout& layout = program.layouts[static_cast<size_t>(instr.layout)];
    const std::vector<int64_t> shares =
        shares_of(program.mesh, layout, *depths_of(layout, instr.axes), member_of(program, layout, rank));
    return {shares.begin(), shares.end()};
  }
  const auto members = static_cast<uint64_t>(program.mesh.size(instr.axes));
  const auto in = static_cast<uint64_t>(instr.in.empty() ? 0 : instr.in[0].elements());
  switch (kind) {
    case TransferKind::reduce_scatter:
    case TransferKind::all_to_all:
      return std::vector<uint64_t>(kind == TransferKind::all_to_all ? 2 * members : members, in / members);
    case TransferKind::all_gather: return std::vector<uint64_t>(members, in);
    default: return {};
  }
}

}  // namespace

Result<std::unique_ptr<Executor>> Executor::prepare(const Program& program, RankDevice& device, bool exact) {
  std::unique_ptr<Executor> out(new Executor(program, device, exact));
  TENON_CHECK(out->prepare_all());
  return out;
}

Status Executor::prepare_all() {
  lanes_.resize(program_.lanes.size());
  // Opening a group waits for its members: all ranks open theirs in the same order.
  std::set<std::vector<AxisId>> groups;
  for (const Instr& instr : program_.instrs) {
    if (instr.lane != 0) groups.insert(instr.axes);
  }
  for (const auto& axes : groups) TENON_CHECK(device_.group(axes));
  for (InstrId id = 0; id < program_.instrs.size(); ++id) TENON_CHECK(prepare_instr(id));
  for (Update& update : updates_) {  // no piece moves any more
    for (const tenon_update& piece : update.pieces) {
      update.pointers.push_back(&piece);
      update.watch.add(piece, *update.declaration);
    }
  }
  return {};
}

Status Executor::prepare_instr(InstrId id) {
  const Instr& instr = program_.instrs[id];
  Record record;
  record.first_wait = static_cast<uint32_t>(waits_.size());
  waits_.insert(waits_.end(), instr.waits.begin(), instr.waits.end());
  record.num_waits = static_cast<uint32_t>(waits_.size()) - record.first_wait;
  record.first_call = static_cast<uint32_t>(calls_.size());
  record.first_update = static_cast<uint32_t>(updates_.size());
  if (is_optimizers(instr))
    TENON_CHECK(add_updates(instr));
  else if (instr.lane != 0)
    TENON_CHECK(prepare_transfer(instr, record));
  else
    TENON_CHECK(add_calls(id));
  record.num_calls = static_cast<uint32_t>(calls_.size()) - record.first_call;
  record.num_updates = static_cast<uint32_t>(updates_.size()) - record.first_update;
  // The others hold stages up, in an order that only the plan's own waits have been proved for.
  record.within_class =
      record.transfer != nullptr && std::ranges::count(instr.axes, program_.pipeline_axis) == 0;
  if (record.transfer != nullptr) lanes_[instr.lane].transfers.push_back(id);
  records_.push_back(record);
  return {};
}

int64_t Executor::offset(const Instr& instr) const {
  if (instr.offset_step == 0) return 0;
  return instr.offset_step *
         index_on(device_.mesh(), device_.mesh().coordinate(device_.id().rank), instr.axes);
}

size_t Executor::member(const FlatLayout& layout) const {
  return member_of(program_, layout, device_.id().rank);
}

Status Executor::add_calls(InstrId id) {
  const Instr& instr = program_.instrs[id];
  std::optional<size_t> me;
  if (instr.layout >= 0) me = member(program_.layouts[static_cast<size_t>(instr.layout)]);
  std::vector<Instr> storage;
  for (const Instr& kernel : kernels_of(program_, instr, me, storage)) TENON_CHECK(add_call(id, kernel));
  return {};
}

Status Executor::add_call(InstrId id, const Instr& instr) {
  const int64_t shift = offset(instr);
  Handle<tenon_kernel>& kernel = kernels_[kernel_key(instr, shift)];
  const auto [plugin, device] = device_.runner_of(instr.kind);
  if (kernel == nullptr) {
    const KernelDesc desc(instr, exact_, shift);
    tenon_kernel* made = nullptr;
    tenon_error error = empty_abi_error();
    const tenon_code code = plugin->table->prepare(device, &desc.get(), &made, &error);
    if (code != TENON_OK) return located(code, error, id, plugin->id);
    kernel = Handle<tenon_kernel>(made, plugin->table->release);
  }
  calls_.push_back({kernel.get(), plugin, static_cast<uint32_t>(pointers_.size()),
                    static_cast<uint32_t>(outputs_.size())});
  for (const Operand& operand : instr.in) pointers_.push_back(device_.address(program_, operand));
  for (const Operand& operand : instr.out) pointers_.push_back(device_.address(program_, operand));
  pointers_.push_back(instr.workspace.buffer == kNone ? nullptr : device_.address(program_, instr.workspace));
  const auto operands = std::span<void* const>(pointers_).subspan(calls_.back().first_pointer);
  for (size_t i = 0; i < instr.out.size(); ++i) {
    if (!is_made_anew(instr, i, operands)) continue;
    outputs_.push_back({static_cast<char*>(operands[instr.in.size() + i]), instr.out[i].bytes(),
                        instr.out[i].dtype,
                        fmt::format("output {} ({}) of {}", i, instr.out[i].name, instr.kind)});
    ++calls_.back().num_outputs;
  }
  return {};
}

Status Executor::prepare_transfer(const Instr& instr, Record& record) {
  TENON_TRY(tenon_comm_group * group, device_.group(instr.axes));
  const TransferKind kind = transfer_of(instr);
  if (kind == TransferKind::none) {
    return Error{"P020", "no transfer of kind '" + instr.kind + "'", program_.name, "", TENON_E_INTERNAL};
  }
  const int64_t rank = device_.id().rank;
  const std::vector<uint64_t> counts = counts_of(program_, instr, kind, rank);
  const Operand& operand = instr.in.empty() ? instr.out[0] : instr.in[0];
  tenon_comm_op op{};
  op.struct_size = sizeof op;
  op.kind = transfer_row(kind).comm;
  op.reduce = static_cast<uint32_t>(instr.reduction);
  op.dtype = static_cast<uint32_t>(operand.dtype);
  op.src = kind == TransferKind::recv ? nullptr : device_.address(program_, operand);
  op.dst = instr.out.empty() ? nullptr : device_.address(program_, instr.out[0]);
  op.count = static_cast<uint64_t>(operand.elements());
  if (instr.layout >= 0 && kind == TransferKind::all_gather) {
    op.count =
        counts[static_cast<size_t>(index_on(device_.mesh(), device_.mesh().coordinate(rank), instr.axes))];
  } else if (instr.layout >= 0) {
    op.count = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  }
  op.counts = counts.empty() ? nullptr : counts.data();
  op.peer = instr.peer;
  const tenon_comm_op* const ops[] = {&op};
  const auto& comm = device_.plugins().comm;
  TENON_TRY(auto plan, open_handle<tenon_comm_plan>(comm.id, comm.table->release, [&](auto** o, auto* e) {
              return comm.table->prepare(group, ops, 1, o, e);
            }));
  record.transfer = plan.get();
  transfers_.push_back(std::move(plan));
  return {};
}

// A call for each optimizer group in the bucket, of this rank's parts of its parameters.
Status Executor::add_updates(const Instr& instr) {
  const OptimizerOperands operands = optimizer_operands(instr);
  const bool measures = instr.kind == "stats";
  const FlatLayout& layout = program_.layouts[static_cast<size_t>(instr.layout)];
  const FlatPart mine = part_of(program_, layout, layout.depth(), device_.id().rank);
  std::map<int, size_t> of_group;  // -> updates_
  int64_t sums = 0;                // of the leaves before
  for (const FlatLayout::Leaf& leaf : layout.leaves) {
    const LeafPart part = leaf_in(leaf, mine);
    const int64_t at = sums;
    const uint32_t count = device_.optimizer_declaration(static_cast<size_t>(leaf.group)).num_stats;
    sums += count;
    if (part.count == 0 || (measures && count == 0)) continue;
    const auto [known, fresh] = of_group.try_emplace(leaf.group, updates_.size());
    if (fresh) {
      Update& update = updates_.emplace_back();
      update.state = device_.optimizer(static_cast<size_t>(leaf.group));
      update.declaration = &device_.optimizer_declaration(static_cast<size_t>(leaf.group));
      update.scale = reinterpret_cast<const double*>(device_.address(program_, operands.scale));
      update.measures = measures;
    }
    TENON_CHECK(add_piece(instr, leaf, part, updates_[known->second]));
    if (count > 0)
      updates_[known->second].pieces.back().stats =
          reinterpret_cast<double*>(device_.address(program_, *operands.stats)) + at;
  }
  return {};
}

Status Executor::add_piece(const Instr& instr, const FlatLayout::Leaf& leaf, const LeafPart& part,
                           Update& update) {
  const OptimizerOperands operands = optimizer_operands(instr);
  const auto address = [&](const Operand& operand) {
    return device_.address(program_, operand) + part.at * size_of(operand.dtype);
  };
  const TensorInfo& param = program_.params[leaf.param];
  std::vector<void*>& slots = update.slots.emplace_back();
  for (const SlotDeclaration& slot : device_.optimizer_declaration(static_cast<size_t>(leaf.group)).slots) {
    const Operand* state =
        state_of_slot(operands.tensors.subspan(1), slot.name, slot.dtype_for(param.operand.dtype));
    if (state == nullptr) {
      return Error{"P038", fmt::format("no state for slot '{}' of {}", slot.name, param.name), program_.name,
                   "", TENON_E_INTERNAL};
    }
    slots.push_back(address(*state));
  }
  tenon_update& piece = update.pieces.emplace_back();
  piece.struct_size = sizeof piece;
  piece.dtype = static_cast<uint32_t>(param.operand.dtype);
  piece.count = static_cast<uint64_t>(part.count);
  const bool whole = part.count == leaf.count && !param.operand.dims.empty();
  piece.rows = whole ? static_cast<uint64_t>(param.operand.dims[0]) : 1;
  piece.param = address(operands.tensors[0]);
  piece.grad = address(operands.grad);
  piece.slots = slots.data();
  const ParamShape& shape = shapes_.emplace_back(shape_of(param));
  piece.name = param.name.c_str();
  piece.first = static_cast<uint64_t>(part.first);
  piece.dims = shape.dims.data();
  piece.starts = shape.starts.data();
  piece.sizes = param.operand.dims->data();
  piece.ndim = static_cast<uint32_t>(shape.dims.size());
  return {};
}

Executor::ParamShape Executor::shape_of(const TensorInfo& param) const {
  const auto at = device_.mesh().coordinate(device_.id().rank);
  ParamShape out;
  for (size_t d = 0; d < param.dims.size(); ++d) {
    out.dims.push_back(param.dims[d].size);
    out.starts.push_back(index_on(device_.mesh(), at, param.placement.dims[d]) * param.operand.dims[d]);
  }
  return out;
}

std::string Executor::place_of(InstrId id, const std::string& who) const {
  const Instr& instr = program_.instrs[id];
  return fmt::format("{} program, instruction {} ({}{}{}), {}, rank {}", program_.name, id, instr.kind,
                     instr.out.empty() ? "" : " ", instr.out.empty() ? "" : instr.out[0].name, who,
                     device_.id().rank);
}

Error Executor::located(tenon_code code, const tenon_error& error, InstrId id, const std::string& who) const {
  Error out = from_abi(code, error, "");
  out.place = place_of(id, who);
  return out;
}

Error Executor::aborted(InstrId id) const {
  return Error{"W011", "the work was aborted", place_of(id, "not begun"), "", TENON_E_ABORTED};
}

// Waits for all that was started on the lane before, too: that is what Order promises.
Status Executor::wait(InstrId id) {
  Lane& lane = lanes_[program_.instrs[id].lane];
  if (lane.complete == lane.started || lane.transfers[lane.complete] > id) return {};
  const double begin = seconds_now();
  while (lane.complete < lane.started && lane.transfers[lane.complete] <= id) {
    const InstrId first = lane.transfers[lane.complete];
    tenon_error error = empty_abi_error();
    const tenon_code code = device_.plugins().comm.table->wait_host(records_[first].transfer, -1, &error);
    if (code != TENON_OK) return located(code, error, first, device_.plugins().comm.id);
    ++lane.complete;
    if (times_ != nullptr) times_[first].done = trace_now();
  }
  transfer_seconds_ += seconds_now() - begin;
  return {};
}

Status Executor::execute(InstrId id, const tenon_step_scalars& scalars) {
  const Record& record = records_[id];
  const PluginSet& plugins = device_.plugins();
  tenon_error error = empty_abi_error();
  if (record.transfer != nullptr) {
    // Behind all that is listed before it, as Order says: kernels have ended when `enqueue` returns.
    const double begin = seconds_now();
    const tenon_code code = plugins.comm.table->start(record.transfer, &kCpuStream, &error);
    if (code != TENON_OK) return located(code, error, id, plugins.comm.id);
    transfer_seconds_ += seconds_now() - begin;
    ++lanes_[program_.instrs[id].lane].started;
  }
  for (uint32_t c = 0; c < record.num_calls; ++c)
    TENON_CHECK(call_kernel(id, calls_[record.first_call + c], scalars.step, error));
  for (uint32_t u = 0; u < record.num_updates; ++u) {
    Update& one = updates_[record.first_update + u];
    tenon_step_scalars mine = scalars;
    mine.grad_scale = *one.scale;
    const tenon_code code = watched_ ? update_watched(one, mine, error) : update(one, mine, error);
    if (code != TENON_OK) return located(code, error, id, plugins.optimizer.id);
  }
  return {};
}

Status Executor::call_kernel(InstrId id, const Call& call, int64_t step, tenon_error& error) {
  const auto outputs =
      std::span<const WatchedOutput>(outputs_).subspan(call.first_output, watched_ ? call.num_outputs : 0);
  spoil(outputs);
  const tenon_code code =
      call.plugin->table->enqueue(call.kernel, &kCpuStream, pointers_.data() + call.first_pointer, &error);
  if (code != TENON_OK) return located(code, error, id, call.plugin->id);
  const auto left = left_unwritten(outputs);
  if (!left) return {};
  return Error{
      "N003",
      fmt::format("step {}: element {} of {} was left unwritten", step, left->element, left->output.what),
      place_of(id, call.plugin->id), "correct the plugin", TENON_E_STATE};
}

tenon_code Executor::update(Update& one, const tenon_step_scalars& scalars, tenon_error& error) {
  const tenon_optimizer& table = *device_.plugins().optimizer.table;
  return (one.measures ? table.stats : table.step)(one.state, &kCpuStream, one.pointers.data(),
                                                   static_cast<uint32_t>(one.pointers.size()), &scalars,
                                                   &error);
}

tenon_code Executor::update_watched(Update& one, const tenon_step_scalars& scalars, tenon_error& error) {
  if (one.measures)
    one.watch.before_stats();
  else
    one.watch.before_step(scalars);
  const tenon_code code = update(one, scalars, error);
  const Status seen = one.measures ? one.watch.after_stats() : one.watch.after_step();
  if (found_.ok()) found_ = seen;
  return code;
}

Status Executor::run_watched(int64_t step, double lr, Waits waits, InstrTimes* times) {
  found_ = {};
  watched_ = true;
  const Status ran = run(step, lr, waits, times);
  watched_ = false;
  return ran;
}

Executor::Seen Executor::seen(int64_t step) const {
  Seen out;
  for (const Update& one : updates_) {
    out.moved = out.moved || one.watch.moved();
    out.must_move = out.must_move || one.watch.must_move();
  }
  if (found_.ok()) return out;
  Error named = found_.error();
  named.cause = fmt::format("step {}: {}", step, named.cause);
  named.place =
      fmt::format("{}, {}, rank {}", device_.plugins().optimizer.id, named.place, device_.id().rank);
  out.found = named;
  return out;
}

Status Executor::run(int64_t step, double lr, Waits waits, InstrTimes* times) {
  const tenon_step_scalars scalars{sizeof scalars, 0, step, lr, 1.0};
  for (Lane& lane : lanes_) lane.started = lane.complete = 0;
  transfer_seconds_ = 0;
  times_ = times;
  return times != nullptr ? run_all<true>(scalars, waits) : run_all<false>(scalars, waits);
}

template <bool kTraced>
Status Executor::run_all(const tenon_step_scalars& scalars, Waits waits) {
  for (InstrId id = 0; id < records_.size(); ++id) {
    const Record& record = records_[id];
    now_.store(id, std::memory_order_relaxed);
    if (device_.is_aborted()) return aborted(id);
    if constexpr (kTraced) times_[id].ready = trace_now();
    for (uint32_t w = 0; w < record.num_waits; ++w) TENON_CHECK(wait(waits_[record.first_wait + w]));
    if constexpr (kTraced) times_[id].start = trace_now();
    TENON_CHECK(execute(id, scalars));
    if constexpr (kTraced) times_[id].done = times_[id].issued = trace_now();
    if (waits == Waits::at_once && record.within_class) TENON_CHECK(wait(id));
  }
  for (const Lane& lane : lanes_) {
    if (!lane.transfers.empty()) TENON_CHECK(wait(lane.transfers.back()));
  }
  return {};
}

void Executor::poison_arena() {
  std::memset(device_.space(Space::arena), kPoison, device_.bytes(Space::arena));
}

uint64_t Executor::arena_high_water() const {
  const auto* base = reinterpret_cast<const unsigned char*>(device_.space(Space::arena));
  uint64_t high = device_.bytes(Space::arena);
  while (high > 0 && base[high - 1] == kPoison) --high;
  return high;
}

}  // namespace tenon
