// Which instruction of which rank comes next, and when a transfer does its work.
#pragma once

#include <functional>

#include "interpreter.h"

namespace tenon::mutants {

class Schedule {
 public:
  using Compute = std::function<void(size_t rank, const Work& work)>;
  Schedule(const std::vector<RankWork>& ranks, const Channels& channels, Compute compute);

  // Once. Fault where the ranks get stuck.
  void run(Completion completion, uint64_t seed);

 private:
  struct Instance {  // of a channel: one transfer of all its members
    std::vector<const Post*> posts;
    size_t started = 0;
    bool complete = false;
    bool full() const { return started == posts.size(); }
  };
  struct Lane {
    std::vector<InstrId> instrs;
    std::vector<Instance*> instances;  // of those that have started; empty for compute
    size_t next = 0;
    size_t ended = 0;  // of the instances, those that are complete and have none before them that is not
  };
  struct Rank {
    std::vector<Lane> lanes;
    std::vector<size_t> position;        // of each instruction on its lane
    std::vector<size_t> compute_before;  // each instruction, in the list
    // By instruction and lane: how many must be complete, because it or one before it in the list waits.
    std::vector<std::vector<size_t>> owed;
    InstrId next = 0;  // in the list, where that is what counts
  };

  void early();
  void late();
  void mixed(uint64_t seed);

  bool ready(size_t rank, InstrId id);
  bool try_compute(size_t rank);
  bool try_start(size_t rank, size_t lane);
  bool sweep();  // whatever any rank can do; false: nothing
  void start(size_t rank, InstrId id);
  void complete(Instance& instance);
  // The oldest transfer that a rank waits for, or would, and that all members have started.
  Instance* awaited(size_t rank, InstrId id) const;
  void follow_list(size_t rank);
  bool finished() const;
  void finish();

  const std::vector<RankWork>& work_;
  const Channels& channels_;
  Compute compute_;
  std::vector<Rank> ranks_;
  std::vector<std::vector<std::unique_ptr<Instance>>> instances_;  // by channel
  std::vector<std::vector<size_t>> started_;                       // by rank and channel: how many so far
  std::vector<Instance*> full_;                                    // and not complete
  bool at_once_ = false;  // a transfer is complete as soon as all members have started it
};

}  // namespace tenon::mutants
