#include <algorithm>
#include <functional>

#include "plan/emit.h"

namespace tenon {
namespace {

struct Access {
  InstrId instr;
  uint64_t lo, hi;
  bool write;
};

}  // namespace

void schedule_waits(Program& program) {
  const auto lanes = static_cast<uint32_t>(program.lanes.size());
  std::vector<std::vector<Access>> accesses(program.buffers.size());
  std::vector<std::vector<uint32_t>> clock(program.instrs.size(), std::vector<uint32_t>(lanes));
  std::vector<uint32_t> position(program.instrs.size()), count(lanes);
  std::vector<InstrId> last(lanes, kNone);
  const auto learn = [&](InstrId to, InstrId from, bool complete) {
    for (uint32_t l = 0; l < lanes; ++l) clock[to][l] = std::max(clock[to][l], clock[from][l]);
    uint32_t& mine = clock[to][program.instrs[from].lane];
    if (complete) mine = std::max(mine, position[from]);
  };
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    Instr& instr = program.instrs[id];
    instr.waits.clear();
    position[id] = ++count[instr.lane];
    if (last[instr.lane] != kNone) learn(id, last[instr.lane], instr.lane == 0);  // see Order
    last[instr.lane] = id;
    std::vector<InstrId> needed;
    const auto conflict = [&](const Operand& operand, bool write) {
      if (operand.buffer == kNone) return;
      const uint64_t lo = operand.offset, hi = operand.offset + operand.bytes();
      for (const Access& a : accesses[operand.buffer]) {
        if ((write || a.write) && a.lo < hi && lo < a.hi && a.instr != id) needed.push_back(a.instr);
      }
      accesses[operand.buffer].push_back({id, lo, hi, write});
    };
    for (const Operand& operand : instr.in) conflict(operand, false);
    for (const Operand& operand : instr.out) conflict(operand, true);
    // Latest first: an instruction waited for brings what it knew itself.
    std::sort(needed.begin(), needed.end(), std::greater<>());
    for (InstrId from : needed) {
      if (clock[id][program.instrs[from].lane] >= position[from]) continue;
      instr.waits.push_back(from);
      learn(id, from, true);
    }
    std::sort(instr.waits.begin(), instr.waits.end());
  }
}

}  // namespace tenon
