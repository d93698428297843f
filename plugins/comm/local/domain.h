// One virtual rank: its domain, its handles on groups, its plans in flight.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "group.h"
#include "hub.h"
#include "tenon_sdk/comm/direct.hpp"
#include "tenon_sdk/comm/table.hpp"

namespace tenon::comm_local {

class Plan;

class Domain : public tenon_comm_domain {
 public:
  Domain(const tenon_comm_config& config, std::shared_ptr<Hub> hub);
  ~Domain();
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  void* allocate(uint64_t bytes);
  void release(void* pointer);
  void abort() { hub_->leave(rank_, RankState::kAborted); }

  Hub& hub() { return *hub_; }
  int rank() const { return rank_; }
  // The number of groups with these members that this rank has opened before.
  uint64_t next_ordinal(const std::vector<int>& members);
  // Plans that exist, so that start() finds room for all of them.
  void enroll();
  void withdraw();

  void start(Plan& plan);
  // TENON_OK, TENON_PENDING, or throws the plan's problem.
  tenon_code test(Plan& plan);
  // timeout_ns < 0: the domain's.
  void wait(Plan& plan, int64_t timeout_ns);
  // Before a release: waits for a plan in flight, whatever becomes of it.
  void finish(Plan& plan);

 private:
  void progress();
  // True: the bell has rung.
  bool look_for(comm::Bell& bell, uint32_t seen) const;
  bool settled(Plan& plan);

  const int rank_;
  const int64_t timeout_ns_;
  const bool crowded_;  // ranks outnumber cores
  const std::shared_ptr<Hub> hub_;
  std::mutex mutex_;  // guards what follows, and the state of this rank's plans
  std::vector<Plan*> in_flight_;
  size_t num_plans_ = 0;
  std::map<std::vector<int>, uint64_t> ordinals_;
  std::unordered_set<void*> allocated_;
};

// A member's handle.
class GroupHandle : public tenon_comm_group {
 public:
  GroupHandle(Domain& domain, const std::vector<int>& members);
  ~GroupHandle();
  GroupHandle(const GroupHandle&) = delete;
  GroupHandle& operator=(const GroupHandle&) = delete;
  Domain& domain() { return domain_; }
  Group& group() { return *group_; }
  int me() const { return me_; }
  Key next_key(const comm::Op& op);

 private:
  Domain& domain_;
  const int me_;
  const uint64_t ordinal_;
  const std::shared_ptr<Group> group_;
  uint64_t num_collectives_ = 0;
  std::vector<uint64_t> num_sends_, num_receives_;  // by the other member
};

// Its state is guarded by the domain's mutex.
class Plan : public tenon_comm_plan {
 public:
  Plan(GroupHandle& group, const tenon_comm_op* const* ops, uint32_t num_ops);
  // Never in flight by then.
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  enum class State { kIdle, kInFlight, kDone, kFailed };
  Domain& domain() { return group_.domain(); }
  State state() const { return state_; }
  const Problem& problem() const { return problem_; }
  void start();
  // Moves what can move; true when no longer in flight.
  bool progress();
  // Ends what is in flight.
  void fail(const Problem& problem);
  // "rank 0 waited 1.000 s for all_reduce ...: not arrived: rank 1"
  Problem timeout(int64_t waited_ns);

 private:
  struct Step {
    Step(comm::Op checked, comm::Reducer reducer) : op(std::move(checked)), work(op, reducer) {}
    const comm::Op op;
    comm::DirectWork work;
    Instance* instance = nullptr;  // while in flight
    bool worked = false;
  };
  std::optional<Problem> progress(Step& step);
  static void do_part(Step& step);

  GroupHandle& group_;
  std::vector<std::unique_ptr<Step>> steps_;
  State state_ = State::kIdle;
  Problem problem_;
};

}  // namespace tenon::comm_local
