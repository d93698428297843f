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

  void insert(const Placed& entry) {
    const auto begins = [](const std::vector<Placed>& block) { return block.front().lo; };
    auto block = std::ranges::upper_bound(blocks_.begin() + 1, blocks_.end(), entry.lo, {}, begins) - 1;
    block->insert(std::ranges::upper_bound(*block, entry.lo, {}, &Placed::lo), entry);
    if (block->size() < kMost) return;
    std::vector<Placed> rest(block->begin() + kMost / 2, block->end());
    block->resize(kMost / 2);
    blocks_.insert(block + 1, std::move(rest));
  }

  // Goes through the entries that overlap a lifetime, by address.
  class Cursor {
   public:
    Cursor(const ByAddress& list, const Lifetime& life) : blocks_(&list.blocks_), life_(life) { settle(); }
    const Placed* at() const { return block_ < blocks_->size() ? &(*blocks_)[block_][entry_] : nullptr; }
    void next() {
      ++entry_;
      settle();
    }

   private:
    void settle() {
      for (; block_ < blocks_->size(); ++block_, entry_ = 0) {
        const std::vector<Placed>& block = (*blocks_)[block_];
        while (entry_ < block.size() && !block[entry_].life.overlaps(life_)) ++entry_;
        if (entry_ < block.size()) return;
      }
    }

    const std::vector<std::vector<Placed>>* blocks_;
    Lifetime life_;
    size_t block_ = 0, entry_ = 0;
  };

 private:
  static constexpr size_t kMost = 512;
  std::vector<std::vector<Placed>> blocks_;
};

// The lowest address that is free for all of a lifetime; an entry may be in several lists.
uint64_t first_gap(std::vector<ByAddress::Cursor> cursors, uint64_t bytes) {
  uint64_t at = 0;
  while (true) {
    ByAddress::Cursor* lowest = nullptr;
    for (ByAddress::Cursor& cursor : cursors) {
      if (cursor.at() != nullptr && (lowest == nullptr || cursor.at()->lo < lowest->at()->lo))
        lowest = &cursor;
    }
    if (lowest == nullptr || lowest->at()->lo >= at + bytes) return at;
    at = std::max(at, lowest->at()->hi);
    lowest->next();
  }
}

// What has been placed: all of it; by equal spans of time, because most buffers live shortly and need to look
// at few others; and what lives so long that it would be in too many of these.
class Shelf {
 public:
  explicit Shelf(uint64_t end) : spans_(end / kSpan + 1) {}

  uint64_t first_gap(const Lifetime& life, uint64_t bytes) const {
    const size_t first = span_of(life.lo), last = span_of(life.hi);
    if (last - first >= kFew) return tenon::first_gap({{all_, life}}, bytes);
    std::vector<ByAddress::Cursor> cursors{{long_, life}};
    for (size_t i = first; i <= last; ++i) cursors.emplace_back(spans_[i], life);
    return tenon::first_gap(std::move(cursors), bytes);
  }

  void insert(const Placed& entry) {
    all_.insert(entry);
    const size_t first = span_of(entry.life.lo), last = span_of(entry.life.hi);
    if (last - first >= kMany) return long_.insert(entry);
    for (size_t i = first; i <= last; ++i) spans_[i].insert(entry);
  }

 private:
  static constexpr uint64_t kSpan = 512;  // instructions
  static constexpr size_t kFew = 8, kMany = 64;

  size_t span_of(uint64_t time) const { return std::min<uint64_t>(time / kSpan, spans_.size() - 1); }

  ByAddress all_, long_;
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
