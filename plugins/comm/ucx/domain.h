// One process's membership: the worker, its peers, control messages, plans in flight.
//
// UCX is driven by whoever calls start, test or a wait, under one mutex; there is no thread of our own. A
// wait looks a few hundred times, then sleeps on UCX's event descriptor, so that ranks may outnumber cores.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "algorithms.h"
#include "endpoint.h"
#include "group.h"
#include "liveness.h"

namespace tenon::comm_ucx {

class Plan;

// One operation of a plan.
class Step {
 public:
  Step(Group& group, comm::Op op, comm::Reducer reducer)
      : group_(group),
        op_(std::move(op)),
        algorithm_(op_, reducer),
        transfers_(group, op_, algorithm_.capacity()) {}
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  void start();
  // Moves on as far as possible. A problem ends the operation.
  std::optional<Problem> progress();
  bool done() const { return done_; }
  // See Transfers::cancel.
  bool cancel() { return transfers_.cancel(); }
  // "all_reduce sum f32[10]"
  std::string kind_text() const;
  // "all_reduce sum f32[10] (operation 3 of group [0, 1])"
  std::string title() const;
  std::string waiting_for() const { return transfers_.waiting_for(); }

 private:
  Group& group_;
  const comm::Op op_;
  Algorithm algorithm_;
  Transfers transfers_;
  int stage_ = 0;
  bool done_ = true;
};

class Domain : public tenon_comm_domain {
 public:
  Domain(const tenon_comm_config& config, const std::string& tls);
  // Tells the peers that it goes. If all is well, waits up to two seconds until they go too: what they still
  // need may be on its way.
  ~Domain();
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  void* allocate(uint64_t bytes);
  void release(void* pointer);
  // [thread-safe]
  void abort();
  bool aborted() const { return aborted_.load(); }

  std::mutex& mutex() { return mutex_; }
  const Worker& worker() const { return *worker_; }
  const tenon_rendezvous& rendezvous() const { return rendezvous_; }
  int rank() const { return rank_; }
  int world() const { return world_; }
  int64_t timeout_ns() const { return timeout_ns_; }
  Peer& peer(int rank);
  bool has_trouble() const { return has_trouble_; }

  uint16_t add_group(Group& group);
  void remove_group(const Group& group);
  uint64_t next_ordinal(const std::vector<int>& members) { return ordinals_[members]++; }
  void tell_failed(Group& group, const Problem& problem);
  void enroll() { in_flight_.reserve(++num_plans_); }
  void withdraw() { --num_plans_; }
  // UCX does not let go of this step's memory: from here on the worker does not run, so nothing is written to
  // it, and all operations of this domain fail.
  void freeze(std::unique_ptr<Step> step);
  bool frozen() const { return !held_.empty(); }

  void start(Plan& plan);
  // TENON_OK, TENON_PENDING, or throws the plan's problem.
  tenon_code test(Plan& plan);
  // timeout_ns < 0: the domain's.
  void wait(Plan& plan, int64_t timeout_ns);
  // Before a release: waits for a plan in flight, whatever becomes of it.
  void finish(Plan& plan);

 private:
  struct Outgoing {
    Control body;
    bool sent = false;
  };
  // True if anything has moved.
  bool progress();
  bool run_worker();
  bool settled(Plan& plan);
  // Releases the lock while it sleeps.
  void sleep(std::unique_lock<std::mutex>& lock, const Deadline& deadline);
  void notice_abort();
  void notice_trouble();
  void send_control(Peer& peer, const Control& control);
  void tell_all(Control::Type type, const std::string& text);
  void receive_control();
  void take_control();
  void hear(const Control& control);
  static void on_control_sent(void* request, ucs_status_t status, void* outgoing);
  static void on_control_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                                  void* domain);
  bool all_others_left() const;
  void linger(std::unique_lock<std::mutex>& lock);

  const int rank_;
  const int world_;
  const int64_t timeout_ns_;
  const tenon_rendezvous& rendezvous_;
  int spins_ = 0;
  std::atomic<bool> aborted_{false};
  int abort_fd_ = -1;
  std::unique_ptr<Worker> worker_;
  std::vector<std::string> addresses_;
  std::vector<ProcessIdentity> processes_;

  std::mutex mutex_;                         // guards UCX and what follows, and the state of groups and plans
  std::vector<std::unique_ptr<Step>> held_;  // not empty: frozen
  std::map<int, std::unique_ptr<Peer>> peers_;
  Liveness liveness_;
  std::vector<pollfd> poll_entries_;  // the sleeper's
  uint32_t num_progress_ = 0;
  std::unordered_set<int> left_;  // ranks that have said goodbye or are lost
  bool has_trouble_ = false;
  bool abort_noticed_ = false;
  bool healthy_ = true;
  std::map<uint16_t, Group*> groups_;
  uint32_t next_group_ = 0;
  std::map<std::vector<int>, uint64_t> ordinals_;
  Control incoming_;
  void* control_request_ = nullptr;
  bool control_came_ = false;
  bool closing_ = false;
  std::list<Outgoing> outgoing_;
  std::vector<Plan*> in_flight_;
  size_t num_plans_ = 0;
  std::unordered_set<void*> allocated_;
};

// Its state is guarded by the domain's mutex.
class Plan : public tenon_comm_plan {
 public:
  Plan(Group& group, const tenon_comm_op* const* ops, uint32_t num_ops);
  // Never in flight by then.
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  enum class State { kIdle, kInFlight, kDone, kFailed };
  Domain& domain() { return group_.domain(); }
  State state() const { return state_; }
  const Problem& problem() const { return problem_; }
  void start();
  // True when no longer in flight.
  bool progress();
  // Ends the group, and with it this plan.
  void time_out(int64_t waited_ns);

 private:
  void fail(const Problem& problem);
  Group& group_;
  std::vector<std::unique_ptr<Step>> steps_;
  State state_ = State::kIdle;
  Problem problem_;
};

}  // namespace tenon::comm_ucx
