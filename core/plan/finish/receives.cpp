#include "plan/finish/receives.h"

#include <algorithm>
#include <map>

namespace tenon {
namespace {

struct Receive {
  InstrId id;
  InstrId needed;  // by this instruction, which reads what it or one behind it on its lane brings
};

// By lane, in order.
std::map<uint32_t, std::vector<Receive>> receives_of(const Program& program) {
  const auto end = static_cast<InstrId>(program.instrs.size());
  std::map<uint32_t, std::vector<Receive>> out;
  std::vector<InstrId> used(program.buffers.size(), end);  // next, behind where we are
  for (InstrId id = end; id-- > 0;) {
    const Instr& instr = program.instrs[id];
    if (transfer_of(instr) == TransferKind::recv) {
      auto& lane = out[instr.lane];
      const InstrId later = lane.empty() ? end : lane.back().needed;
      lane.push_back({id, std::min(later, used[instr.out[0].buffer])});
    }
    for (const auto* operands : {&instr.in, &instr.out}) {
      for (const Operand& operand : *operands)
        if (operand.buffer != kNone) used[operand.buffer] = id;
    }
  }
  for (auto& [lane, receives] : out) std::ranges::reverse(receives);
  return out;
}

// The first of a lane that is in flight together with number i where the window is used up.
std::vector<size_t> oldest_beside(const Program& program, const std::vector<Receive>& receives) {
  std::vector<size_t> out;
  size_t oldest = 0;
  uint64_t held = 0;
  for (size_t i = 0; i < receives.size(); ++i) {
    held += bytes_in_flight(program.instrs[receives[i].id]);
    for (; !program.window.admits(i - oldest + 1, held); ++oldest)
      held -= bytes_in_flight(program.instrs[receives[oldest].id]);
    out.push_back(oldest);
  }
  return out;
}

}  // namespace

void place_receives(Program& program) {
  const auto end = static_cast<InstrId>(program.instrs.size());
  std::vector<bool> moves(end);
  std::vector<std::vector<InstrId>> before(end + size_t{1});  // each instruction: the receives to post
  for (const auto& [lane, receives] : receives_of(program)) {
    const std::vector<size_t> oldest = oldest_beside(program, receives);
    for (size_t i = 0, later = 0; i < receives.size(); ++i) {
      while (later < receives.size() && oldest[later] <= i) ++later;
      const Receive& mine = receives[i];
      const InstrId free = oldest[i] == 0 ? 0 : receives[oldest[i] - 1].needed + 1;
      const InstrId awaited = later < receives.size() ? receives[later].id : end;
      before[std::min({std::max(mine.id, free), awaited, mine.needed})].push_back(mine.id);
      moves[mine.id] = true;
    }
  }
  std::vector<Instr> placed;
  placed.reserve(end);
  for (InstrId id = 0; id <= end; ++id) {
    for (InstrId receive : before[id]) placed.push_back(std::move(program.instrs[receive]));
    if (id < end && !moves[id]) placed.push_back(std::move(program.instrs[id]));
  }
  program.instrs = std::move(placed);
}

}  // namespace tenon
