// What the virtual ranks of one process share: who is there, how to wake each other, the groups.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tenon/comm.h"
#include "tenon_sdk/comm/futex.hpp"

namespace tenon::comm_local {

using comm::Deadline;

enum class RankState : uint8_t { kAbsent, kActive, kAborted, kClosed };

class Group;

class Hub {
 public:
  explicit Hub(int world);
  int world() const { return world_; }
  comm::Bell& bell(int rank) { return ranks_[static_cast<size_t>(rank)].bell; }
  RankState state(int rank) const { return ranks_[static_cast<size_t>(rank)].state.load(); }
  // An aborted rank stays so. Wakes everyone.
  void leave(int rank, RankState how);
  // Marks `rank` as come and waits for all. Throws TIMEOUT with the ranks that have not come, ARGUMENT when
  // two say they are the same rank, PEER when another rank has given up.
  void meet(int rank, const Deadline& deadline, int64_t timeout_ns);
  // The `ordinal`-th group with these members; made by whoever comes first.
  std::shared_ptr<Group> open_group(const std::vector<int>& members, uint64_t ordinal);
  // After the last member has closed it, it is forgotten.
  void close_group(const std::shared_ptr<Group>& group, uint64_t ordinal);

 private:
  struct Rank {
    comm::Bell bell;
    std::atomic<RankState> state{RankState::kAbsent};
  };
  std::string absent_ranks() const;

  const int world_;
  std::vector<Rank> ranks_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable met_;
  int num_met_ = 0;
  std::string failed_;  // why the meeting failed
  std::map<std::pair<std::vector<int>, uint64_t>, std::shared_ptr<Group>> groups_;
};

// Makes (rank 0) or finds the hub of this domain through the rendezvous, and meets all ranks there.
std::shared_ptr<Hub> join_hub(const tenon_comm_config& config);

}  // namespace tenon::comm_local
