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

// Some that lie one behind the other by address, and what is true of all of them.
class Block {
 public:
  explicit Block(std::vector<Placed> entries) : entries_(std::move(entries)) {
    for (const Placed& entry : entries_) include(entry);
  }

  const std::vector<Placed>& entries() const { return entries_; }
  uint64_t lo() const { return entries_.front().lo; }

  void insert(const Placed& entry) {
    const auto at = std::ranges::upper_bound(entries_, entry.lo, {}, &Placed::lo);
    if (at == entries_.begin() && lo() > entry.hi) room_ = std::max(room_, lo() - entry.hi);
    include(entry);
    entries_.insert(at, entry);
  }
  // What is cut off: the upper half.
  Block halve() {
    const auto half = entries_.begin() + std::ssize(entries_) / 2;
    Block out(std::vector<Placed>(half, entries_.end()));
    entries_.erase(half, entries_.end());
    *this = Block(std::move(entries_));
    return out;
  }

  uint64_t hi() const { return hi_; }
  // None is in use at that time.
  bool apart(const Lifetime& life) const { return life.hi < first_begin_ || last_end_ < life.lo; }
  // All are, and between them is no room for so many bytes; some that are so are not known to be.
  bool solid(const Lifetime& life, uint64_t bytes) const {
    return last_begin_ <= life.hi && life.lo <= first_end_ && room_ < bytes;
  }

 private:
  void include(const Placed& entry) {
    if (hi_ > 0 && entry.lo > hi_) room_ = std::max(room_, entry.lo - hi_);
    hi_ = std::max(hi_, entry.hi);
    first_begin_ = std::min(first_begin_, entry.life.lo);
    last_begin_ = std::max(last_begin_, entry.life.lo);
    first_end_ = std::min(first_end_, entry.life.hi);
    last_end_ = std::max(last_end_, entry.life.hi);
  }

  std::vector<Placed> entries_;  // by address, at least one
  uint64_t hi_ = 0;
  uint64_t room_ = 0;                                   // at most
  uint64_t first_begin_ = UINT64_MAX, last_begin_ = 0;  // of their lives
  uint64_t first_end_ = UINT64_MAX, last_end_ = 0;
};

// Sorted by address, in blocks, so that little moves when one more is inserted, and most is not looked at.
class ByAddress {
 public:
  void insert(const Placed& entry) {
    if (blocks_.empty()) return blocks_.push_back(Block({entry}));
    auto block = std::ranges::upper_bound(blocks_.begin() + 1, blocks_.end(), entry.lo, {}, &Block::lo) - 1;
    block->insert(entry);
    if (block->entries().size() < kMost) return;
    Block rest = block->halve();
    blocks_.insert(block + 1, std::move(rest));
  }

  // Goes through what is in the way of so many bytes at some time, by address: entries, or whole blocks.
  class Cursor {
   public:
    Cursor(const ByAddress& list, const Lifetime& life, uint64_t bytes)
        : blocks_(list.blocks_), life_(life), bytes_(bytes) {
      next();
    }
    bool ended() const { return ended_; }
    uint64_t lo() const { return lo_; }
    uint64_t hi() const { return hi_; }

    void next() {
      if (next_entry()) return;
      for (; !blocks_.empty();) {
        const Block& block = blocks_.front();
        blocks_ = blocks_.subspan(1);
        if (block.apart(life_)) continue;
        if (block.solid(life_, bytes_)) return stand(block.lo(), block.hi());
        entries_ = block.entries();
        if (next_entry()) return;
      }
      ended_ = true;
    }

   private:
    bool next_entry() {
      while (!entries_.empty()) {
        const Placed& entry = entries_.front();
        entries_ = entries_.subspan(1);
        if (!entry.life.overlaps(life_)) continue;
        stand(entry.lo, entry.hi);
        return true;
      }
      return false;
    }
    void stand(uint64_t lo, uint64_t hi) {
      lo_ = lo;
      hi_ = hi;
    }

    std::span<const Block> blocks_;  // behind where it is
    std::span<const Placed> entries_ = {};
    Lifetime life_;
    uint64_t bytes_, lo_ = 0, hi_ = 0;
    bool ended_ = false;
  };

 private:
  static constexpr size_t kMost = 128;
  std::vector<Block> blocks_;
};

// The lowest address that is free among what some cursors find; each entry once.
uint64_t first_gap(std::span<ByAddress::Cursor> cursors, uint64_t bytes) {
  uint64_t at = 0;
  while (true) {
    ByAddress::Cursor* lowest = nullptr;
    for (ByAddress::Cursor& cursor : cursors) {
      while (!cursor.ended() && cursor.hi() <= at) cursor.next();
      if (!cursor.ended() && (lowest == nullptr || cursor.lo() < lowest->lo())) lowest = &cursor;
    }
    if (lowest == nullptr || lowest->lo() >= at + bytes) return at;
    at = lowest->hi();
  }
}

// What has been placed, by equal spans of time, of which each pair of neighbours has a list; and what would
// be in too many of these.
class Level {
 public:
  Level(uint64_t span, uint64_t end) : span_(span), pairs_(end / span + 1) {}

  // Within two neighbouring spans.
  bool holds(const Lifetime& life) const { return span_of(life.hi) - span_of(life.lo) < 2; }

  uint64_t first_gap(const Lifetime& life, uint64_t bytes) {
    std::array<ByAddress::Cursor, 2> cursors{ByAddress::Cursor(long_, life, bytes),
                                             ByAddress::Cursor(pairs_[span_of(life.lo)], life, bytes)};
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

  uint64_t first_gap(const Lifetime& life, uint64_t bytes) {
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
    if (instr.kind == "update") keep(optimizer_operands(instr).grad);  // gradient_of()
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
