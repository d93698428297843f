#include "enumeration.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace tenon::test {
namespace {

// -- a clock and devices ----------------------------------------------------------------------------------

// A piece of work: 'F', 'I' or 'W' of a microbatch at a depth (stage) of a direction. Directions never meet.
struct Key {
  char kind;
  int direction, depth, microbatch;
  auto operator<=>(const Key&) const = default;
};

// What runs without a break on a device: the pieces that it does, in `ticks` units.
struct Block {
  std::vector<Key> does;
  int ticks = 0;
};

std::vector<Key> needs(const Key& key, int depths) {
  std::vector<Key> out;
  if (key.kind == 'F' && key.depth > 0) out.push_back({'F', key.direction, key.depth - 1, key.microbatch});
  if (key.kind == 'I') out.push_back({'F', key.direction, key.depth, key.microbatch});
  if (key.kind == 'I' && key.depth + 1 < depths)
    out.push_back({'I', key.direction, key.depth + 1, key.microbatch});
  if (key.kind == 'W') out.push_back({'I', key.direction, key.depth, key.microbatch});
  return out;
}

int64_t ticks_of(const std::vector<std::vector<Block>>& devices, int depths) {
  std::map<Key, int64_t> done;  // when
  std::vector<size_t> next(devices.size(), 0);
  std::vector<int64_t> free_at(devices.size(), 0);
  const auto can_start = [&](const Block& block, int64_t now) {
    for (const Key& key : block.does) {
      for (const Key& need : needs(key, depths)) {
        if (std::find(block.does.begin(), block.does.end(), need) != block.does.end())
          continue;  // W of a backward
        const auto found = done.find(need);
        if (found == done.end() || found->second > now) return false;
      }
    }
    return true;
  };
  int64_t left = 0;
  for (const auto& blocks : devices) left += static_cast<int64_t>(blocks.size());
  for (int64_t now = 0; left > 0; ++now) {
    if (now > 1'000'000) throw std::runtime_error("a deadlock");
    for (size_t d = 0; d < devices.size(); ++d) {
      if (free_at[d] > now || next[d] == devices[d].size() || !can_start(devices[d][next[d]], now)) continue;
      const Block& block = devices[d][next[d]++];
      free_at[d] = now + block.ticks;
      for (const Key& key : block.does) done[key] = free_at[d];
      --left;
    }
  }
  return *std::max_element(free_at.begin(), free_at.end());
}

// -- published schedules: a pattern so many times, then the next
// -------------------------------------------------

// Words of a pattern: F, I (input gradient), B (whole backward) and W with the chunk 0 or 1, W alone for the
// oldest weight gradient that is owed, and a&b for two at once.
struct Phase {
  int times;
  const char* pattern;
};

// What chunk 0 and chunk 1 of a device are.
struct Chunk {
  int direction, depth;
};

class Device {
 public:
  Device(Chunk chunk0, Chunk chunk1) : chunks_{chunk0, chunk1} {}

  std::vector<Block> unfold(const std::vector<Phase>& phases) {
    std::vector<Block> out;
    for (const Phase& phase : phases) {
      if (phase.times < 0) throw std::runtime_error("a phase of less than nothing");
      for (int i = 0; i < phase.times; ++i) {
        std::istringstream words(phase.pattern);
        for (std::string word; words >> word;) out.push_back(block_of(word));
      }
    }
    return out;
  }

 private:
  Block block_of(const std::string& word) {
    Block block;
    std::istringstream parts(word);
    for (std::string part; std::getline(parts, part, '&');) add(part, block);
    return block;
  }

  void add(const std::string& part, Block& block) {
    const char kind = part[0];
    block.ticks += kind == 'B' ? 2 : 1;
    if (kind == 'W' && part.size() == 1) {
      block.does.push_back(owed_.at(0));
      owed_.pop_front();
      return;
    }
    const int chunk = part.at(1) - '0';
    const auto next = [&](char of) { return next_[{of, chunk}]++; };
    const auto key = [&](char of, int mb) {
      return Key{of, chunks_[chunk].direction, chunks_[chunk].depth, mb};
    };
    if (kind == 'F' || kind == 'W') {
      block.does.push_back(key(kind, next(kind)));
      return;
    }
    const int mb = next('I');
    block.does.push_back(key('I', mb));
    if (kind == 'B') block.does.push_back(key('W', mb));
    if (kind == 'I') owed_.push_back(key('W', mb));
  }

  std::array<Chunk, 2> chunks_;
  std::map<std::pair<char, int>, int> next_;
  std::deque<Key> owed_;
};

// Leaves out the microbatches from `microbatches` on; a backward or a pair that loses a part gets shorter.
std::vector<Block> cut(const std::vector<Block>& blocks, int microbatches) {
  std::vector<Block> out;
  for (Block block : blocks) {
    std::erase_if(block.does, [&](const Key& key) { return key.microbatch >= microbatches; });
    block.ticks = static_cast<int>(block.does.size());  // each piece is one unit
    if (!block.does.empty()) out.push_back(block);
  }
  return out;
}

}  // namespace

int64_t published_zb_v(int ranks, int microbatches) {
  std::vector<std::vector<Block>> devices;
  for (int rank = 0; rank < ranks; ++rank) {
    const int behind = ranks - 1 - rank;
    Device device({0, rank}, {0, 2 * ranks - 1 - rank});
    devices.push_back(device.unfold({{2 * behind + 1, "F0"},
                                     {rank, "F1 F0"},
                                     {behind + 1, "F1 I1 W1"},
                                     {microbatches - ranks - behind, "F0 I0 W0 F1 I1 W1"},
                                     {behind, "I0 W0 F1 I1 W1"},
                                     {rank, "I0 I1"},
                                     {behind + 1, "I0 W0"},
                                     {rank, "W1"},
                                     {rank, "W0"}}));
  }
  return ticks_of(devices, 2 * ranks);
}

int64_t published_dualpipe(int ranks, int microbatches) {
  const int devices_count = 2 * ranks, unfolded = std::max(microbatches, 2 * ranks);
  std::vector<std::vector<Block>> devices;
  for (int d = 0; d < devices_count; ++d) {
    const int half_rank = std::min(d, devices_count - 1 - d), behind = ranks - 1 - half_rank;
    const bool middle = behind == 0;
    const int direction = d < ranks ? 0 : 1;
    Device device({direction, half_rank}, {1 - direction, devices_count - 1 - half_rank});
    const int main = unfolded - devices_count + half_rank + 1;
    const bool odd = half_rank % 2 == 1;
    const int half = (half_rank + 1) / 2;
    std::vector<Phase> phases = {{2 * behind, "F0"}, {half_rank + 1, "F0 F1"}, {behind, "I1 W F1"}};
    phases.push_back({1, middle ? "F0 B1 F1&B0" : "F0&B1 F1&B0"});
    phases.push_back({main - 1, "F0&B1 F1&B0"});
    phases.push_back({behind, "B1 F1&B0"});
    phases.push_back({half, "B1 B0"});
    if (!odd) phases.push_back({1, "B1 I0"});
    phases.push_back({half_rank + 1 - half - (odd ? 0 : 1), "I1 I0"});
    phases.push_back({behind, "W I0"});
    phases.push_back({half_rank + 1, "W"});
    devices.push_back(cut(device.unfold(phases), microbatches));
  }
  return ticks_of(devices, devices_count);
}

// -- greedy schedules
// --------------------------------------------------------------------------------------------

namespace {

// Preferences among "F0" (down), "F1" (up), "I0" and "I1"; W comes last.
using Order = std::array<int, 4>;

class Greedy {
 public:
  Greedy(int ranks, int microbatches, const Order& order)
      : ranks_(ranks),
        microbatches_(microbatches),
        order_(order),
        activations_(static_cast<size_t>(ranks), 0) {}

  // INT64_MAX: this order of preference fills the memory and gets stuck.
  int64_t ticks() {
    int64_t left = int64_t{6} * ranks_ * microbatches_, now = 0;
    for (int idle = 0; left > 0; ++now) {
      int ran = 0;
      for (int rank = 0; rank < ranks_; ++rank) ran += step(rank, now) ? 1 : 0;
      idle = ran == 0 ? idle + 1 : 0;
      if (idle > 1) return INT64_MAX;
      left -= ran;
    }
    return now;
  }

 private:
  bool done(const Key& key, int64_t now) const {
    const auto found = done_.find(key);
    return found != done_.end() && found->second <= now;
  }

  bool try_next(char kind, int rank, int chunk, int64_t now) {
    const int depth = chunk == 0 ? rank : 2 * ranks_ - 1 - rank;
    const Key key{kind, 0, depth, next_[{kind, depth}]};
    int& activations = activations_[static_cast<size_t>(rank)];
    if (key.microbatch == microbatches_) return false;
    // A forward down the V leaves room for the one that comes up, without which nothing would ever be
    // released.
    if (kind == 'F' && activations + (chunk == 0 ? 2 : 1) > 2 * ranks_) return false;
    for (const Key& need : needs(key, 2 * ranks_)) {
      if (!done(need, now)) return false;
    }
    done_[key] = now + 1;
    ++next_[{kind, depth}];
    activations += kind == 'F' ? 1 : kind == 'W' ? -1 : 0;
    return true;
  }

  bool step(int rank, int64_t now) {
    for (const int choice : order_) {
      if (try_next("FFII"[choice], rank, choice % 2, now)) return true;
    }
    const int first = next_[{'W', rank}] <= next_[{'W', 2 * ranks_ - 1 - rank}] ? 0 : 1;
    return try_next('W', rank, first, now) || try_next('W', rank, 1 - first, now);
  }

  int ranks_, microbatches_;
  Order order_;
  std::map<Key, int64_t> done_;
  std::map<std::pair<char, int>, int> next_;
  std::vector<int> activations_;
};

}  // namespace

int64_t greedy_v(int ranks, int microbatches) {
  Order order = {0, 1, 2, 3};
  int64_t best = INT64_MAX;
  do {
    best = std::min(best, Greedy(ranks, microbatches, order).ticks());
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

}  // namespace tenon::test
