// One group as all its members see it: operations in flight, matched by kind of sequence and number.
//
// Life of an instance: members post -> all arrived: each does its own part of the work, reading the others'
// memory -> all done: each leaves -> back to the pool. A failed instance is never worked on again, and fail()
// returns only when nobody works on it, so the memory of a failed operation belongs to its owner again.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "hub.h"
#include "tenon_sdk/comm/op.hpp"

namespace tenon::comm_local {

struct Problem {
  tenon_code code = TENON_OK;
  std::string text;
};

// Which operation: collectives are numbered per group, sends and receives per ordered pair.
struct Key {
  int from = -1, to = -1;  // send and recv only
  uint64_t number = 0;
  bool operator==(const Key&) const = default;
};

struct Instance {
  Key key;
  uint32_t expected = 0;             // parts: members, or 2 for send and recv (slot 0 sends, 1 receives)
  std::atomic<uint32_t> arrived{0};  // written under the group's mutex
  std::atomic<uint32_t> done{0};     // likewise
  std::atomic<bool> failed{false};   // likewise
  uint32_t working = 0;              // guarded by the mutex, as is the rest
  uint32_t left = 0;
  Problem problem;
  std::vector<const comm::Op*> ops;  // by slot; read without the mutex once all have arrived

  bool all_arrived() const { return arrived.load(std::memory_order_acquire) == expected; }
  bool all_done() const { return done.load(std::memory_order_acquire) == expected; }
};

class Group {
 public:
  Group(Hub& hub, std::vector<int> members) : hub_(hub), members_(std::move(members)) {}
  const std::vector<int>& members() const { return members_; }
  int size() const { return static_cast<int>(members_.size()); }
  // True for the last member.
  bool close_one() { return ++num_closed_ == members_.size(); }

  // Room for `num_ops` more operations in flight, so that post() never allocates.
  void reserve(uint32_t num_ops);
  void unreserve(uint32_t num_ops);

  // This member has started `op`, which stays valid until leave() or fail(). Disagreement fails the instance.
  Instance& post(const Key& key, const comm::Op& op);
  // False: the instance has failed and must not be worked on.
  bool enter_work(Instance& instance);
  void leave_work(Instance& instance);
  // After all_done(); the instance must not be touched afterwards.
  void leave(Instance& instance);
  // Ends this member's part: fails the instance unless it is done or has failed already, waits until nobody
  // works on it, and leaves it. Returns the instance's problem; nothing if it was done.
  std::optional<Problem> fail(Instance& instance, const Problem& problem);
  // Why an unfinished instance cannot finish any more: it failed, or a member has left. Nothing: keep
  // waiting.
  std::optional<Problem> obstacle(Instance& instance, const comm::Op& mine);
  // "all_reduce sum f32[10] (operation 3 of group [0, 1])"
  std::string title(const Instance& instance, const comm::Op& mine) const;
  // "not arrived: rank 2"
  std::string waiting_for(const Instance& instance);

 private:
  int rank_of_slot(const Instance& instance, size_t slot) const;
  void fail_locked(Instance& instance, const Problem& problem);
  void leave_locked(Instance& instance);
  void ring_parts(const Instance& instance);
  std::vector<int> missing_ranks(const Instance& instance) const;

  Hub& hub_;
  const std::vector<int> members_;
  size_t num_closed_ = 0;  // guarded by the hub's mutex
  std::mutex mutex_;
  std::condition_variable idle_;
  uint64_t reserved_ = 0;
  std::vector<std::unique_ptr<Instance>> all_;
  std::vector<Instance*> free_;
  std::vector<Instance*> live_;
};

}  // namespace tenon::comm_local
