// V004 to V006 and V008: who touches which bytes, in which order, and what is in flight.
#include <fmt/format.h>

#include <deque>
#include <numeric>

#include "plan/program/contributions.h"
#include "plan/verify/checks.h"
#include "plan/verify/verify.h"

namespace tenon {
namespace {

bool overlap(const ByteRange& a, const ByteRange& b) { return a.lo < b.hi && b.lo < a.hi; }

// The first operand of `id` that shares bytes with what `other` touches, one of the two writing. NULL: none.
const Operand* conflict(const Program& program, InstrId id, InstrId other) {
  const Operand* found = nullptr;
  each_access(program.instrs[id], [&](const Operand& mine, bool writes) {
    const ByteRange range = range_of(program, mine);
    each_access(program.instrs[other], [&](const Operand& theirs, bool they_write) {
      if ((writes || they_write) && found == nullptr && overlap(range, range_of(program, theirs)))
        found = &mine;
    });
  });
  return found;
}

// Kernels follow each other, and transfers follow the kernels before them: what may race is a transfer in
// flight and whatever is listed until something waits for it.
Status check_order(const Program& program) {
  const Order order(program);
  std::vector<InstrId> in_flight;
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    std::erase_if(in_flight, [&](InstrId other) { return order.before(other, id); });
    for (InstrId other : in_flight) {
      const Operand* operand = conflict(program, id, other);
      if (operand == nullptr) continue;
      return refuse("V004",
                    fmt::format("'{}' shares bytes with instruction {} ({}), and nothing orders the two",
                                operand->name, other, program.instrs[other].kind),
                    where(program, id));
    }
    if (program.instrs[id].lane != 0) in_flight.push_back(id);
  }
  return {};
}

// What an instruction writes is apart from all else that it touches, unless it says that it works in place.
Status check_within(const Program& program, InstrId id) {
  const Instr& instr = program.instrs[id];
  const TransferKind kind = transfer_of(instr);
  std::vector<Operand> writes = instr.out;
  if (instr.workspace.buffer != kNone) writes.push_back(instr.workspace);
  for (size_t k = 0; k < writes.size(); ++k) {
    const ByteRange mine = range_of(program, writes[k]);
    const auto shared = [&](const Operand& other) {
      return refuse(
          "V004",
          fmt::format("'{}' shares bytes with '{}' of the same instruction", writes[k].name, other.name),
          where(program, id));
    };
    for (size_t i = 0; i < instr.in.size(); ++i) {
      const ByteRange other = range_of(program, instr.in[i]);
      const bool in_place = k == 0 && other.lo == mine.lo && other.hi == mine.hi &&
                            (kind == TransferKind::all_reduce || kind == TransferKind::broadcast ||
                             static_cast<int>(i) == instr.inplace);
      if (overlap(mine, other) && !in_place) return shared(instr.in[i]);
    }
    for (size_t j = 0; j < k; ++j) {
      if (overlap(mine, range_of(program, writes[j]))) return shared(writes[j]);
    }
  }
  return {};
}

struct Owner {
  BufferId buffer = kNone;  // kNone: not written in this step
  InstrId writer = kNone;
};

// Follows the owners of the arena's bytes through the step, in list order.
class Owners {
 public:
  explicit Owners(const Program& program) : program_(program) {}

  // The first byte range of the operand that somebody else wrote over, or that nobody wrote.
  struct Finding {
    bool unwritten = false;
    InstrId clobbered_by = kNone;
    InstrId of_another = kNone;  // the writer of bytes that belong to another microbatch
  };
  // `microbatch`: the reader's; below 0: it may read what any of them wrote.
  Finding read(const Operand& operand, int microbatch) {
    Finding out;
    const Buffer& buffer = program_.buffers[operand.buffer];
    if (buffer.space != Space::arena) return out;
    bool any = false, all = true;
    bytes_.each(range_of(program_, operand), [&](const Owner& owner) {
      if (owner.buffer == operand.buffer) {
        any = true;
        const Instr& writer = program_.instrs[owner.writer];
        // Gathered parameters are the same for all microbatches: rows that run interleaved share them.
        const bool parameters = transfer_of(writer) == TransferKind::all_gather && writer.layout >= 0;
        const bool another = microbatch >= 0 && writer.microbatch >= 0 && writer.microbatch != microbatch;
        if (another && !parameters) out.of_another = owner.writer;
      } else if (owner.buffer != kNone && first_write_[operand.buffer] < owner.writer) {
        out.clobbered_by = owner.writer;
      } else {
        all = false;
      }
    });
    // Bytes between the tensors of a bucket are never written; reading the whole of it is no fault.
    const bool whole = buffer.gaps && operand.bytes() == buffer.bytes;
    out.unwritten = !all && !(whole && any);
    return out;
  }

  void write(const Operand& operand, InstrId id) {
    bytes_.assign(range_of(program_, operand), Owner{operand.buffer, id});
    first_write_[operand.buffer] = std::min(first_write_[operand.buffer], id);
  }

 private:
  const Program& program_;
  ByteMap<Owner> bytes_;
  std::vector<InstrId> first_write_ = std::vector<InstrId>(program_.buffers.size(), kNone);
};

Status check_read(const Program& program, Owners& owners, const Operand& operand, int microbatch,
                  const std::string& place) {
  const auto finding = owners.read(operand, microbatch);
  if (finding.clobbered_by != kNone) {
    return refuse("V004",
                  fmt::format("'{}' was written over by instruction {} ({})", operand.name,
                              finding.clobbered_by, program.instrs[finding.clobbered_by].kind),
                  place);
  }
  if (finding.unwritten) return refuse("V006", "'" + operand.name + "' is read before it is written", place);
  if (finding.of_another != kNone) {
    return refuse("V006",
                  fmt::format("'{}' was written for microbatch {} by instruction {}", operand.name,
                              program.instrs[finding.of_another].microbatch, finding.of_another),
                  place);
  }
  return {};
}

Status check_reads(const Program& program) {
  Owners owners(program);
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    const Instr& instr = program.instrs[id];
    const auto check = [&](const Operand& operand, bool any_microbatch) {
      Status status = check_read(program, owners, operand, any_microbatch ? -1 : instr.microbatch, "");
      if (status.ok()) return status;
      Error error = std::move(status).error();
      error.place = where(program, id);
      return Status(std::move(error));
    };
    for (const Operand& operand : instr.in) TENON_CHECK(check(operand, instr.kind == "add"));
    for (size_t k = 0; k < instr.out.size(); ++k) {
      if (adds_into(instr, k)) TENON_CHECK(check(instr.out[k], instr.phase == Phase::weight_grad));
    }
    if (instr.workspace.buffer != kNone) owners.write(instr.workspace, id);
    for (const Operand& operand : instr.out) owners.write(operand, id);
  }
  for (const auto& [name, operand] : program.outputs)
    TENON_CHECK(check_read(program, owners, operand, -1, program.name + " program, output " + name));
  return {};
}

// Parameters, states and inputs never share bytes.
Status check_disjoint(const Program& program) {
  std::vector<BufferId> ids(program.buffers.size());
  std::iota(ids.begin(), ids.end(), 0u);
  std::erase_if(ids, [&](BufferId id) { return program.buffers[id].space == Space::arena; });
  const auto key = [&](BufferId id) {
    return std::pair(program.buffers[id].space, program.buffers[id].offset);
  };
  std::sort(ids.begin(), ids.end(), [&](BufferId a, BufferId b) { return key(a) < key(b); });
  for (size_t i = 1; i < ids.size(); ++i) {
    const Buffer& a = program.buffers[ids[i - 1]];
    const Buffer& b = program.buffers[ids[i]];
    if (a.space != b.space || a.offset + a.bytes <= b.offset) continue;
    return refuse("V005", fmt::format("'{}' and '{}' share bytes", a.name, b.name),
                  program.name + " program");
  }
  return {};
}

}  // namespace

Status check_races(const Program& program) {
  TENON_CHECK(check_order(program));
  for (InstrId id = 0; id < program.instrs.size(); ++id) TENON_CHECK(check_within(program, id));
  return {};
}

Status check_windows(const Program& program) {
  const Order order(program);
  std::vector<std::deque<InstrId>> in_flight(program.lanes.size());
  std::vector<uint64_t> held(program.lanes.size());
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    const Instr& instr = program.instrs[id];
    if (instr.lane == 0) continue;
    auto& queue = in_flight[instr.lane];
    uint64_t& bytes = held[instr.lane];
    for (; !queue.empty() && order.before(queue.front(), id); queue.pop_front())
      bytes -= bytes_in_flight(program.instrs[queue.front()]);
    queue.push_back(id);
    bytes += bytes_in_flight(instr);
    if (program.window.admits(queue.size(), bytes)) continue;
    return refuse("V008",
                  fmt::format("{} transfers with {} bytes are in flight on {}, whose window is {} with {}",
                              queue.size(), bytes, program.lanes[instr.lane], program.window.transfers,
                              program.window.bytes),
                  where(program, id));
  }
  return {};
}

Status check_uses(const Program& program) { return check_reads(program); }

Status check_memory(const Program& program) {
  TENON_CHECK(check_disjoint(program));
  uint64_t peak = 0;
  for (const Instr& instr : program.instrs) {
    each_access(instr, [&](const Operand& operand, bool) {
      const Buffer& buffer = program.buffers[operand.buffer];
      if (buffer.space == Space::arena) peak = std::max(peak, buffer.offset + aligned(buffer.bytes));
    });
  }
  const uint64_t planned = program.space_bytes[static_cast<size_t>(Space::arena)];
  if (peak == planned) return {};
  return refuse("V005", fmt::format("arena peak {} bytes, planned {}", peak, planned),
                program.name + " program");
}

}  // namespace tenon
