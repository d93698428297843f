#include "plan/finish/memory.h"

#include <algorithm>
#include <numeric>

namespace tenon {
namespace {

struct Placed {
  uint64_t lo, hi;
  Lifetime life;
};

// Sorted by address, in blocks, so that little moves when one more is inserted.
class ByAddress {
 public:
  ByAddress() : blocks_(1) {}

  // The lowest address that is free for all of a lifetime.
  uint64_t first_gap(const Lifetime& life, uint64_t bytes) const {
    uint64_t at = 0;
    for (const auto& block : blocks_) {
      for (const Placed& other : block) {
        if (!other.life.overlaps(life)) continue;
        if (other.lo >= at + bytes) return at;
        at = std::max(at, other.hi);
      }
    }
    return at;
  }

  void insert(const Placed& entry) {
    const auto begins = [](const std::vector<Placed>& block) { return block.front().lo; };
    auto block = std::ranges::upper_bound(blocks_.begin() + 1, blocks_.end(), entry.lo, {}, begins) - 1;
    block->insert(std::ranges::upper_bound(*block, entry.lo, {}, &Placed::lo), entry);
    if (block->size() < kMost) return;
    std::vector<Placed> rest(block->begin() + kMost / 2, block->end());
    block->resize(kMost / 2);
    blocks_.insert(block + 1, std::move(rest));
  }

 private:
  static constexpr size_t kMost = 512;
  std::vector<std::vector<Placed>> blocks_;
};

// What has been placed; and again for each of equal spans of time, because most buffers live shortly and need
// to look at few others.
class Shelf {
 public:
  explicit Shelf(uint64_t end) : span_(end / kSpans + 1), spans_(kSpans) {}

  uint64_t first_gap(const Lifetime& life, uint64_t bytes) const {
    const size_t first = span_of(life.lo);
    return (first == span_of(life.hi) ? spans_[first] : all_).first_gap(life, bytes);
  }

  void insert(const Placed& entry) {
    all_.insert(entry);
    for (size_t i = span_of(entry.life.lo); i <= span_of(entry.life.hi); ++i) spans_[i].insert(entry);
  }

 private:
  static constexpr size_t kSpans = 64;

  size_t span_of(uint64_t time) const { return std::min<uint64_t>(time / span_, kSpans - 1); }

  uint64_t span_;
  ByAddress all_;
  std::vector<ByAddress> spans_;
};

}  // namespace

std::vector<Lifetime> lifetimes(const Program& program) {
  const Order order(program);
  std::vector<Lifetime> out(program.buffers.size());
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    const Instr& instr = program.instrs[id];
    const Lifetime use{id, order.behind(id) - uint64_t{1}};
    const auto extend = [&out, &use](const Operand& operand) {
      if (operand.buffer == kNone) return;
      Lifetime& life = out[operand.buffer];
      life.lo = std::min(life.lo, use.lo);
      life.hi = std::max(life.hi, use.hi);
    };
    for (const Operand& operand : instr.in) extend(operand);
    for (const Operand& operand : instr.out) extend(operand);
    extend(instr.workspace);
  }
  const auto keep = [&out](const Operand& operand) {  // read after the step
    if (operand.buffer != kNone) out[operand.buffer].hi = UINT64_MAX;
  };
  for (const auto& [name, operand] : program.outputs) keep(operand);
  for (const Instr& instr : program.instrs) {
    if (instr.kind == "update") keep(input(instr, "grad"));  // Session::gradient()
  }
  return out;
}

void plan_memory(Program& program) {
  program.space_bytes.fill(0);
  const std::vector<Lifetime> life = lifetimes(program);
  std::vector<BufferId> arena;
  for (BufferId id = 0; id < program.buffers.size(); ++id) {
    Buffer& buffer = program.buffers[id];
    uint64_t& end = program.space_bytes[static_cast<size_t>(buffer.space)];
    if (buffer.space != Space::arena) {
      buffer.offset = end;
      end += aligned(buffer.bytes);
    } else if (life[id].lo <= life[id].hi) {
      arena.push_back(id);
    }
  }
  std::stable_sort(arena.begin(), arena.end(), [&](BufferId a, BufferId b) {
    return program.buffers[a].bytes > program.buffers[b].bytes;
  });
  Shelf shelf(program.instrs.size());
  uint64_t& peak = program.space_bytes[static_cast<size_t>(Space::arena)];
  for (BufferId id : arena) {
    Buffer& buffer = program.buffers[id];
    const uint64_t bytes = aligned(buffer.bytes);
    buffer.offset = shelf.first_gap(life[id], bytes);
    const Placed entry{buffer.offset, buffer.offset + bytes, life[id]};
    shelf.insert(entry);
    peak = std::max(peak, entry.hi);
  }
}

}  // namespace tenon
