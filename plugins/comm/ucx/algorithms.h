// How each kind is done by messages: stages, with local work after each.
//
//   all_reduce, small      everyone sends everything to everyone and reduces all of it
//   all_reduce, medium     halving and doubling, for 4, 8, 16 ... members: in stage k the members i and i xor
//   2^k give
//                          each other half of what they still hold, and add; then the way back
//   all_reduce, large      per segment: members send slice i to member i, who reduces it; then the slices go
//   round
//                          a ring (small ones: everyone sends its slice to all)
//   reduce_scatter         per segment: members send part i to member i, who reduces it
//   all_gather             a ring, or, when small, one stage, everyone to everyone
//   all_to_all             one stage, everyone to everyone
//   broadcast              binomial tree
//   permute, send, recv    one message
//   barrier                dissemination, log2 n stages
//
// Every sum is added in the tree of tenon/comm.h: the bits are those of comm/local. Slices and parts are
// reduced by one member who has all values. Halving makes the tree itself, level by level: after stage k a
// member holds the sum over its aligned block of 2^(k + 1) members. (A ring that adds as it goes would be
// another order.)
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
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  void plan_reduction();
  comm::ElementRange segment(int member, uint64_t number) const;
  // all_reduce of slices: each segment is one stage of scattering and some of gathering.
  int stage_in_segment(int stage) const { return stage % (1 + gather_stages_); }
  uint64_t segment_of(int stage) const { return static_cast<uint64_t>(stage / (1 + gather_stages_)); }
  std::byte* staging(int member) const;
  void post_scatter(uint64_t number, Transfers& transfers);
  void post_gather(uint64_t number, Transfers& transfers);
  void post_ring(uint64_t number, int step, Transfers& transfers);
  void post_halving(int stage, Transfers& transfers);
  comm::ElementRange held(int member, int stages) const;
  void add_half(int stage);
  void post_direct(Transfers& transfers);
  void post_all_gather(Transfers& transfers);
  void post_all_gather_ring(int step, Transfers& transfers);
  void post_all_to_all(Transfers& transfers);
  void post_broadcast(int stage, Transfers& transfers);
  void post_barrier(int stage, Transfers& transfers);
  void reduce(uint64_t number);
  void copy_own();

  const comm::Op& op_;
  const comm::Reducer reducer_;
  int num_stages_ = 1;
  bool direct_ = false;          // all_reduce: everything to everyone
  int halvings_ = 0;             // all_reduce: log2 n if done so
  int gather_stages_ = 0;        // all_reduce by slices: 1, or n - 1 in a ring
  bool ring_ = false;            // all_gather
  std::vector<uint64_t> parts_;  // reductions: part i is [parts_[i], parts_[i + 1])
  uint64_t segment_count_ = 0;   // elements of each part in one segment
  uint64_t staging_bytes_ = 0;
  std::unique_ptr<std::byte[], Free> staging_;
  std::vector<const void*> sources_;
};

}  // namespace tenon::comm_ucx
