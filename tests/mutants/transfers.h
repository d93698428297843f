// Transfers as tenon/comm.h says them, over the memories of all ranks.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "rank_memory.h"

namespace tenon::mutants {

// What one rank brings to a transfer.
struct Post {
  TransferKind kind = TransferKind::none;
  uint32_t channel = 0;  // see Channels
  size_t member = 0;     // of the channel
  const char* src = nullptr;
  char* dst = nullptr;
  uint64_t count = 0;
  std::vector<uint64_t> counts;  // where members' parts differ, or the kind has parts
  Dtype dtype = Dtype::f64;
  Reduction reduction = Reduction::sum;
  int32_t peer = -1;
};

// Who meets whom: a group's members in its collectives, two of them in what one sends the other. Transfers of
// a channel meet in the order in which each member starts its own.
class Channels {
 public:
  // The channel of a group's collectives.
  uint32_t collective(const std::vector<AxisId>& axes, const std::vector<int32_t>& members);
  // From one member's rank to another's.
  uint32_t pair(const std::vector<AxisId>& axes, const std::vector<int32_t>& members, size_t from, size_t to);
  size_t members(uint32_t channel) const { return sizes_[channel]; }
  size_t size() const { return sizes_.size(); }

 private:
  uint32_t find(std::vector<int64_t> key, size_t members);
  std::map<std::vector<int64_t>, uint32_t> known_;
  std::vector<size_t> sizes_;
};

// The transfer of an instruction on a rank. `mesh`: the one that the ranks stand on.
Post post_of(const Program& program, const Instr& instr, const Mesh& mesh, int64_t rank, RankMemory& memory,
             Channels& channels);

// All members' posts, by member. Fault where they do not agree.
void perform(const std::vector<const Post*>& posts);

}  // namespace tenon::mutants
