#include "plan/finish/waits.h"

#include <algorithm>
#include <deque>

namespace tenon {
namespace {

bool share_bytes(const Operand& a, const Operand& b) {
  return a.buffer != kNone && a.buffer == b.buffer && a.offset < b.offset + b.bytes() &&
         b.offset < a.offset + a.bytes();
}

// Both touch some bytes that one of them writes.
bool conflict(const Instr& a, const Instr& b) {
  const auto writes = [](const Instr& writer, const Instr& other) {
    return std::ranges::any_of(writer.out, [&](const Operand& out) {
      const auto shared = [&](const Operand& operand) { return share_bytes(out, operand); };
      return std::ranges::any_of(other.in, shared) || std::ranges::any_of(other.out, shared);
    });
  };
  return writes(a, b) || writes(b, a);
}

// Transfers of a lane that have started and that nothing has waited for yet, oldest first. Who waits for one
// waits for all before it.
class InFlight {
 public:
  // How many of them must end before this instruction starts: the bytes demand it,
  size_t before(const Program& program, const Instr& instr) const {
    for (size_t n = ids_.size(); n > 0; --n) {
      if (conflict(program.instrs[ids_[n - 1]], instr)) return n;
    }
    return 0;
  }
  // or the window, if this is the lane's next.
  size_t beyond(const Program& program, const Instr& next) const {
    uint64_t held = held_ + bytes_in_flight(next);
    size_t n = 0;
    for (; !program.window.admits(ids_.size() - n + 1, held); ++n)
      held -= bytes_in_flight(program.instrs[ids_[n]]);
    return n;
  }

  void start(const Program& program, InstrId id) {
    ids_.push_back(id);
    held_ += bytes_in_flight(program.instrs[id]);
  }
  // The last of the first `n`, which have ended.
  InstrId end(const Program& program, size_t n) {
    InstrId last = kNone;
    for (; n > 0; --n, ids_.pop_front()) {
      last = ids_.front();
      held_ -= bytes_in_flight(program.instrs[last]);
    }
    return last;
  }

 private:
  std::deque<InstrId> ids_;
  uint64_t held_ = 0;
};

}  // namespace

void schedule_waits(Program& program) {
  std::vector<InFlight> lanes(program.lanes.size());
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    Instr& instr = program.instrs[id];
    instr.waits.clear();
    for (uint32_t lane = 1; lane < lanes.size(); ++lane) {
      InFlight& queue = lanes[lane];
      size_t n = queue.before(program, instr);
      if (lane == instr.lane) n = std::max(n, queue.beyond(program, instr));
      if (n > 0) instr.waits.push_back(queue.end(program, n));
    }
    std::sort(instr.waits.begin(), instr.waits.end());
    if (instr.lane != 0) lanes[instr.lane].start(program, id);
  }
}

}  // namespace tenon
