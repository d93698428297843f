#include "plan/finish/waits.h"

#include <algorithm>
#include <functional>

namespace tenon {
namespace {

struct Access {
  InstrId instr;
  uint64_t lo, hi;
  bool write;
};

// What each instruction knows to have ended: for each lane, how many of its instructions.
class Clocks {
 public:
  explicit Clocks(const Program& program)
      : program_(program),
        known_(program.instrs.size(), std::vector<uint32_t>(program.lanes.size())),
        position_(program.instrs.size()),
        count_(program.lanes.size()),
        last_(program.lanes.size(), kNone) {}

  // The next instruction in list order: it knows what the one before it on its lane knew, and, on the compute
  // lane, that that one has ended (see Order).
  void start(InstrId id) {
    const uint32_t lane = program_.instrs[id].lane;
    position_[id] = ++count_[lane];
    if (last_[lane] != kNone) learn(id, last_[lane], lane == 0);
    last_[lane] = id;
  }

  bool knows(InstrId id, InstrId other) const {
    return known_[id][program_.instrs[other].lane] >= position_[other];
  }

  void learn(InstrId to, InstrId from, bool ended) {
    for (size_t l = 0; l < count_.size(); ++l) known_[to][l] = std::max(known_[to][l], known_[from][l]);
    uint32_t& mine = known_[to][program_.instrs[from].lane];
    if (ended) mine = std::max(mine, position_[from]);
  }

 private:
  const Program& program_;
  std::vector<std::vector<uint32_t>> known_;
  std::vector<uint32_t> position_, count_;
  std::vector<InstrId> last_;
};

// All accesses so far, by buffer.
class Accesses {
 public:
  explicit Accesses(const Program& program) : of_buffer_(program.buffers.size()) {}

  // Adds this one; `out` receives the instructions that it must come after.
  void add(InstrId id, const Operand& operand, bool write, std::vector<InstrId>& out) {
    if (operand.buffer == kNone) return;
    const Access mine{id, operand.offset, operand.offset + operand.bytes(), write};
    for (const Access& a : of_buffer_[operand.buffer]) {
      if ((write || a.write) && a.lo < mine.hi && mine.lo < a.hi && a.instr != id) out.push_back(a.instr);
    }
    of_buffer_[operand.buffer].push_back(mine);
  }

 private:
  std::vector<std::vector<Access>> of_buffer_;
};

}  // namespace

void schedule_waits(Program& program) {
  Clocks clocks(program);
  Accesses accesses(program);
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    Instr& instr = program.instrs[id];
    instr.waits.clear();
    clocks.start(id);
    std::vector<InstrId> needed;
    for (const Operand& operand : instr.in) accesses.add(id, operand, false, needed);
    for (const Operand& operand : instr.out) accesses.add(id, operand, true, needed);
    // Latest first: an instruction waited for brings what it knew itself.
    std::sort(needed.begin(), needed.end(), std::greater<>());
    for (InstrId from : needed) {
      if (clocks.knows(id, from)) continue;
      instr.waits.push_back(from);
      clocks.learn(id, from, true);
    }
    std::sort(instr.waits.begin(), instr.waits.end());
  }
}

}  // namespace tenon
