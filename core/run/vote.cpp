#include "run/vote.h"

#include <fmt/format.h>

#include <numeric>

namespace tenon {

Result<std::unique_ptr<Vote>> Vote::open(RankDevice& device) {
  std::unique_ptr<Vote> out(new Vote(device));
  if (device.id().world == 1) return out;
  std::vector<AxisId> axes(device.mesh().axes.size());
  std::iota(axes.begin(), axes.end(), 0u);
  TENON_TRY(tenon_comm_group * everyone, device.group(axes));
  tenon_comm_op op{};
  op.struct_size = sizeof op;
  op.kind = TENON_COMM_ALL_REDUCE;
  op.reduce = TENON_SUM;
  op.dtype = TENON_I64;
  op.src = op.dst = &out->word_;
  op.count = 1;
  op.peer = -1;
  const tenon_comm_op* const ops[] = {&op};
  const auto& comm = device.plugins().comm;
  TENON_TRY(out->sum_, open_handle<tenon_comm_plan>(comm.id, comm.table->release, [&](auto** o, auto* e) {
              return comm.table->prepare(everyone, ops, 1, o, e);
            }));
  return out;
}

Result<bool> Vote::any(bool mine, int64_t step) {
  if (sum_ == nullptr) return mine;
  const auto& comm = *device_.plugins().comm.table;
  word_ = mine ? 1 : 0;
  const tenon_stream stream{{kDLCPU, 0}, nullptr};
  tenon_error error = empty_abi_error();
  tenon_code code = comm.start(sum_.get(), &stream, &error);
  if (code >= 0) code = comm.wait_host(sum_.get(), -1, &error);
  if (code < 0)
    return from_abi(
        code, error,
        fmt::format("agreement at step {}, {}, rank {}", step, device_.plugins().comm.id, device_.id().rank));
  return word_ > 0;
}

}  // namespace tenon
