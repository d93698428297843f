// What a collective of the graph becomes on memory: packing, transfer, unpacking, and, in exact mode, the
// additions in a fixed tree.
#pragma once

#include "graph/ops.h"
#include "plan/program/builder.h"

namespace tenon {

// Sums over the axes, in place. `tree`: the comm plugin has no fixed order of its own, so the parts are
// exchanged and added here, in the tree of abi/tenon/comm.h.
void emit_all_reduce(ProgramBuilder& builder, const Operand& value, const std::vector<AxisId>& axes,
                     Phase phase, bool tree);

struct Reshard {
  TransferKind kind = TransferKind::none;  // not all_reduce
  std::vector<AxisId> axes;
  int64_t from_dim = 0;  // the dim that the axis shards before
  int64_t to_dim = 0;    // and after
};
void emit_reshard(ProgramBuilder& builder, const Reshard& reshard, const Operand& in, const Operand& out,
                  Phase phase, bool tree);

}  // namespace tenon
