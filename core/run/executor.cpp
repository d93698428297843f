#include "run/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace tenon {
namespace {

constexpr tenon_stream kCpuStream{{kDLCPU, 0}, nullptr};
constexpr unsigned char kPoison = 0xA5;

constexpr std::array<std::pair<const char*, uint32_t>, 4> kTransferKinds{{
    {"all_reduce", TENON_COMM_ALL_REDUCE},
    {"reduce_scatter", TENON_COMM_REDUCE_SCATTER},
    {"all_gather", TENON_COMM_ALL_GATHER},
    {"all_to_all", TENON_COMM_ALL_TO_ALL},
}};

}  // namespace

Result<std::unique_ptr<Executor>> Executor::prepare(const Program& program, RankDevice& device, bool exact) {
  std::unique_ptr<Executor> out(new Executor(program, device));
  out->in_flight_.assign(program.instrs.size(), 0);
  for (InstrId id = 0; id < program.instrs.size(); ++id) TENON_CHECK(out->prepare_instr(id, exact));
  return out;
}

Status Executor::prepare_instr(InstrId id, bool exact) {
  const Instr& instr = program_.instrs[id];
  Record record;
  record.first_wait = static_cast<uint32_t>(waits_.size());
  for (InstrId wait : instr.waits) {
    if (program_.instrs[wait].lane != 0) waits_.push_back(wait);  // the compute lane is this thread
  }
  record.num_waits = static_cast<uint32_t>(waits_.size()) - record.first_wait;
  if (instr.kind == "update")
    prepare_update(instr, record);
  else if (instr.lane != 0)
    TENON_CHECK(prepare_transfer(instr, record));
  else
    TENON_CHECK(prepare_kernel(id, exact, record));
  if (record.transfer != nullptr) transfer_ids_.push_back(id);
  records_.push_back(record);
  return {};
}

int64_t Executor::coordinate_shift(const Instr& instr) const {
  if (instr.kind != "slice" || instr.axes.empty()) return 0;
  const auto at = device_.mesh().coordinate(device_.id().rank);
  int64_t index = 0;
  for (AxisId axis : instr.axes) index = index * device_.mesh().axes[axis].size + at[axis];
  // A slice over axes is written with start = its own size: the coordinate replaces it.
  return (index - 1) * attr_int(instr.attrs, "start");
}

Status Executor::prepare_kernel(InstrId id, bool exact, Record& record) {
  const Instr& instr = program_.instrs[id];
  const int64_t shift = coordinate_shift(instr);
  Handle<tenon_kernel>& kernel = kernels_[kernel_key(instr, shift)];
  const auto& plugin = device_.plugins().kernels;
  if (kernel == nullptr) {
    const KernelDesc desc(instr, exact, shift);
    tenon_kernel* made = nullptr;
    tenon_error error = empty_abi_error();
    const tenon_code code = plugin.table->prepare(device_.kernels(), &desc.get(), &made, &error);
    if (code < 0) return located(code, error, id, plugin.id);
    kernel = Handle<tenon_kernel>(made, plugin.table->release);
  }
  record.kernel = kernel.get();
  record.first_pointer = static_cast<uint32_t>(pointers_.size());
  for (const Operand& operand : instr.in) pointers_.push_back(device_.address(program_, operand));
  for (const Operand& operand : instr.out) pointers_.push_back(device_.address(program_, operand));
  pointers_.push_back(instr.workspace.buffer == kNone ? nullptr : device_.address(program_, instr.workspace));
  return {};
}

Status Executor::prepare_transfer(const Instr& instr, Record& record) {
  TENON_TRY(tenon_comm_group * group, device_.group(instr.axes));
  const auto kind = std::find_if(kTransferKinds.begin(), kTransferKinds.end(),
                                 [&instr](const auto& entry) { return instr.kind == entry.first; });
  if (kind == kTransferKinds.end()) {
    return Error{"P020", "no transfer of kind '" + instr.kind + "'", program_.name, "", TENON_E_INTERNAL};
  }
  const auto members = static_cast<uint64_t>(device_.mesh().size(instr.axes));
  const auto in = static_cast<uint64_t>(instr.in[0].elements()),
             out = static_cast<uint64_t>(instr.out[0].elements());
  std::vector<uint64_t> counts;
  if (kind->second == TENON_COMM_REDUCE_SCATTER) counts.assign(members, out);
  if (kind->second == TENON_COMM_ALL_GATHER) counts.assign(members, in);
  if (kind->second == TENON_COMM_ALL_TO_ALL) counts.assign(2 * members, in / members);
  tenon_comm_op op{};
  op.struct_size = sizeof op;
  op.kind = kind->second;
  op.reduce = static_cast<uint32_t>(instr.reduction);
  op.dtype = static_cast<uint32_t>(instr.in[0].dtype);
  op.src = device_.address(program_, instr.in[0]);
  op.dst = device_.address(program_, instr.out[0]);
  op.count = in;
  op.counts = counts.empty() ? nullptr : counts.data();
  op.peer = -1;
  const tenon_comm_op* const ops[] = {&op};
  const auto& comm = device_.plugins().comm;
  TENON_TRY(auto plan, open_handle<tenon_comm_plan>(comm.id, comm.table->release, [&](auto** o, auto* e) {
              return comm.table->prepare(group, ops, 1, o, e);
            }));
  record.transfer = plan.get();
  transfers_.push_back(std::move(plan));
  return {};
}

void Executor::prepare_update(const Instr& instr, Record& record) {
  const auto group = static_cast<size_t>(instr.group);
  const size_t num_slots = device_.slots()[group].size();
  record.update = static_cast<int32_t>(updates_.size());
  Update& update = updates_.emplace_back();
  update.state = device_.optimizer(group);
  update.scale = reinterpret_cast<const double*>(device_.address(program_, instr.in.back()));
  const size_t count = instr.in.size() - 1;
  update.slots.resize(count);
  update.pieces.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const Operand* out = &instr.out[i * (1 + num_slots)];
    for (size_t s = 0; s < num_slots; ++s) update.slots[i].push_back(device_.address(program_, out[1 + s]));
    tenon_update& piece = update.pieces[i];
    piece = {};
    piece.struct_size = sizeof piece;
    piece.dtype = static_cast<uint32_t>(out[0].dtype);
    piece.count = static_cast<uint64_t>(out[0].elements());
    piece.rows = out[0].dims.empty() ? 1 : static_cast<uint64_t>(out[0].dims[0]);
    piece.param = device_.address(program_, out[0]);
    piece.grad = device_.address(program_, instr.in[i]);
    piece.slots = update.slots[i].data();
    update.pointers.push_back(&piece);
  }
}

Error Executor::located(tenon_code code, const tenon_error& error, InstrId id, const std::string& who) const {
  Error out = from_abi(code, error, "");
  const Instr& instr = program_.instrs[id];
  out.place = fmt::format("{} program, instruction {} ({}{}{}), {}, rank {}", program_.name, id, instr.kind,
                          instr.out.empty() ? "" : " ", instr.out.empty() ? "" : instr.out[0].name, who,
                          device_.id().rank);
  return out;
}

Status Executor::wait(InstrId id) {
  if (in_flight_[id] == 0) return {};
  tenon_error error = empty_abi_error();
  const tenon_code code = device_.plugins().comm.table->wait_host(records_[id].transfer, -1, &error);
  if (code < 0) return located(code, error, id, device_.plugins().comm.id);
  in_flight_[id] = 0;
  return {};
}

Status Executor::execute(const Record& record, const tenon_step_scalars& scalars) {
  tenon_error error = empty_abi_error();
  tenon_code code = TENON_OK;
  const PluginSet& plugins = device_.plugins();
  const InstrId id = now_.load(std::memory_order_relaxed);
  if (record.kernel != nullptr) {
    code = plugins.kernels.table->enqueue(record.kernel, &kCpuStream, pointers_.data() + record.first_pointer,
                                          &error);
    if (code < 0) return located(code, error, id, plugins.kernels.id);
  } else if (record.transfer != nullptr) {
    code = plugins.comm.table->start(record.transfer, &kCpuStream, &error);
    if (code < 0) return located(code, error, id, plugins.comm.id);
    in_flight_[id] = 1;
  } else {
    Update& update = updates_[static_cast<size_t>(record.update)];
    tenon_step_scalars mine = scalars;
    mine.grad_scale = *update.scale;
    code = plugins.optimizer.table->step(update.state, &kCpuStream, update.pointers.data(),
                                         static_cast<uint32_t>(update.pointers.size()), &mine, &error);
    if (code < 0) return located(code, error, id, plugins.optimizer.id);
  }
  return {};
}

Status Executor::run(int64_t step, double lr) {
  const tenon_step_scalars scalars{step, lr, 1.0};
  for (InstrId id = 0; id < records_.size(); ++id) {
    const Record& record = records_[id];
    now_.store(id, std::memory_order_relaxed);
    for (uint32_t w = 0; w < record.num_waits; ++w) TENON_CHECK(wait(waits_[record.first_wait + w]));
    TENON_CHECK(execute(record, scalars));
  }
  for (InstrId id : transfer_ids_) TENON_CHECK(wait(id));
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
