#include "plan/finish/memory.h"

#include <algorithm>
#include <array>
#include <span>

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
    Cursor(const ByAddress& list, const Lifetime& life)
        : blocks_(list.blocks_), life_(life), entry_(blocks_[0].data()), end_(entry_ + blocks_[0].size()) {
      settle();
    }
    const Placed* at() const { return entry_; }  // NULL: no more
    void next() {
      ++entry_;
      settle();
    }

   private:
    void settle() {
      while (true) {
        while (entry_ != end_ && !entry_->life.overlaps(life_)) ++entry_;
        if (entry_ != end_) return;
        if (blocks_.size() == 1) break;
        blocks_ = blocks_.subspan(1);
        entry_ = blocks_[0].data();
        end_ = entry_ + blocks_[0].size();
      }
      entry_ = nullptr;
    }

    std::span<const std::vector<Placed>> blocks_;  // the first is where it is
    Lifetime life_;
    const Placed *entry_, *end_;
  };

 private:
  static constexpr size_t kMost = 512;
  std::vector<std::vector<Placed>> blocks_;
};

// The lowest address that is free among what some cursors find; each entry once.
uint64_t first_gap(std::span<ByAddress::Cursor> cursors, uint64_t bytes) {
  uint64_t at = 0;
  while (true) {
    ByAddress::Cursor* lowest = nullptr;
    for (ByAddress::Cursor& cursor : cursors) {
      while (cursor.at() != nullptr && cursor.at()->hi <= at) cursor.next();
      if (cursor.at() != nullptr && (lowest == nullptr || cursor.at()->lo < lowest->at()->lo))
        lowest = &cursor;
    }
    if (lowest == nullptr || lowest->at()->lo >= at + bytes) return at;
    at = lowest->at()->hi;
  }
}

// What has been placed, by equal spans of time, of which each pair of neighbours has a list; and what would
// be in too many of these.
class Level {
 public:
  Level(uint64_t span, uint64_t end) : span_(span), pairs_(end / span + 1) {}

  // Within two neighbouring spans.
  bool holds(const Lifetime& life) const { return span_of(life.hi) - span_of(life.lo) < 2; }

  uint64_t first_gap(const Lifetime& life, uint64_t bytes) const {
    std::array<ByAddress::Cursor, 2> cursors{ByAddress::Cursor(long_, life),
                                             ByAddress::Cursor(pairs_[span_of(life.lo)], life)};
    return tenon::first_gap(cursors, bytes);
  }

  void insert(const Placed& entry) {
    const size_t first = span_of(entry.life.lo), last = span_of(entry.life.hi);
    if (last - first >= kMany) return long_.insert(entry);
    for (size_t i = first - std::min<size_t>(first, 1); i <= last; ++i) pairs_[i].insert(entry);
  }

 private:
  static constexpr size_t kMany = 24;

  size_t span_of(uint64_t time) const { return std::min<uint64_t>(time / span_, pairs_.size() - 1); }

  uint64_t span_;
  std::vector<ByAddress> pairs_;  // by the first of the two spans
  ByAddress long_;
};

// Spans of several lengths, the last one of all time: a buffer is held against those of its time alone.
class Shelf {
 public:
  explicit Shelf(uint64_t end) {
    uint64_t span = 256;
    for (; span < end; span *= 16) levels_.emplace_back(span, end);
    levels_.emplace_back(span, end);
  }

  uint64_t first_gap(const Lifetime& life, uint64_t bytes) const {
    return std::ranges::find_if(levels_, [&](const Level& level) { return level.holds(life); })
        ->first_gap(life, bytes);
  }
  void insert(const Placed& entry) {
    for (Level& level : levels_) level.insert(entry);
  }

 private:
  std::vector<Level> levels_;
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
    if (instr.kind == "update") keep(input(instr, "grad"));  // gradient_of()
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
