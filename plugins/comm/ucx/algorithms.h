// How each kind is done: stages of messages with local work after each.
//
//   all_reduce, small      everyone sends everything to everyone and reduces all of it
//   all_reduce, large      per segment: members send slice i to member i, who reduces it; then everyone sends
//   its slice to all reduce_scatter         per segment: members send part i to member i, who reduces it
//   all_gather, all_to_all one stage, everyone to everyone
//   broadcast              binomial tree
//   permute, send, recv    one message
//   barrier                dissemination, log2 n stages
// Reductions always take all members' values of an element at once, in the tree of tree.hpp: the bits are
// those of comm/local.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tenon_sdk/comm/op.hpp"
#include "tenon_sdk/comm/reduce.hpp"

namespace tenon::comm_ucx {

class Transfers;

class Algorithm {
 public:
  // `op` must outlive it.
  Algorithm(const comm::Op& op, comm::Reducer reducer);
  // Allocates the staging memory, before the first post(). Throws MEMORY.
  void reserve();
  int num_stages() const { return num_stages_; }
  // Messages that one stage has at most.
  size_t capacity() const { return 2 * static_cast<size_t>(op_.n) + 2; }
  void post(int stage, Transfers& transfers);
  // After all messages of the stage have ended.
  void finish(int stage);

 private:
  struct Range {
    uint64_t begin, count;
  };
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  void plan_reduction();
  Range segment(int member, uint64_t number) const;
  bool gathers(int stage) const { return two_phases_ && stage % 2 == 1; }
  uint64_t segment_of(int stage) const { return static_cast<uint64_t>(two_phases_ ? stage / 2 : stage); }
  std::byte* staging(int member) const;
  void post_scatter(uint64_t number, Transfers& transfers);
  void post_gather(uint64_t number, Transfers& transfers);
  void post_direct(Transfers& transfers);
  void post_all_gather(Transfers& transfers);
  void post_all_to_all(Transfers& transfers);
  void post_broadcast(int stage, Transfers& transfers);
  void post_barrier(int stage, Transfers& transfers);
  void reduce(uint64_t number);
  void copy_own();

  const comm::Op& op_;
  const comm::Reducer reducer_;
  int num_stages_ = 1;
  bool direct_ = false;          // all_reduce: everything to everyone
  bool two_phases_ = false;      // all_reduce: scatter, gather
  std::vector<uint64_t> parts_;  // reductions: part i is [parts_[i], parts_[i + 1])
  uint64_t segment_count_ = 0;   // elements of each part in one segment
  uint64_t staging_bytes_ = 0;
  std::unique_ptr<std::byte[], Free> staging_;
  std::vector<const void*> sources_;
};

}  // namespace tenon::comm_ucx
