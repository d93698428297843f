// One process's membership: the worker, its peers, control messages, plans in flight.
//
// Everything is driven by whoever calls start, test or a wait, under one mutex; there is no thread of our
// own. A wait looks for some microseconds, then sleeps: on the bell in its page, which the processes of this
// host ring, or, while messages are in flight, on UCX's event descriptor. So ranks may outnumber cores.
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
#include "memory.h"

namespace tenon::comm_ucx {

class Plan;

// One operation of a plan: on the group's board if there is one, else, or if some memory is out of the
// others' reach, by messages.
class Step {
 public:
  Step(Group& group, comm::Op op, comm::Reducer reducer);
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  void start();
  // Moves on as far as possible. A problem ends the operation.
  std::optional<Problem> progress();
  bool done() const { return done_; }
  // Messages of it are in flight.
  bool by_messages() const { return !done_ && by_messages_; }
  // It is on the board.
  bool meets() const { return !done_ && !by_messages_; }
  // See Transfers::cancel and Meeting::cancel.
  bool cancel();
  // "all_reduce sum f32[10]"
  std::string kind_text() const;
  // "all_reduce sum f32[10] (operation 3 of group [0, 1])"
  std::string title() const;
  std::string waiting_for() const;

 private:
  void begin_messages();
  std::optional<Problem> progress_messages();

  Group& group_;
  const comm::Op op_;
  Algorithm algorithm_;
  Transfers transfers_;
  std::unique_ptr<Meeting> meeting_;
  uint64_t number_ = 0;
  int stage_ = 0;
  bool by_messages_ = false;
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

  // Collective.
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

  Segments& segments() { return segments_; }
  // Whether these ranks, this one among them, all map each other's memory.
  bool share_memory(const std::vector<int>& ranks) const;
  // Memory of that rank, mapped here; NULL if it cannot be. UCX may crash where the owner has ended, so its
  // process is looked at first.
  std::unique_ptr<Mapping> map(int rank, const std::string& ticket);
  // Wakes that rank if it is on this host and sleeps.
  void ring(int rank);
  bool process_has_ended(int rank);
  // Why that rank comes to no board any more, "" while it may.
  std::string reason_to_be_gone(int rank);

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
  enum class Look { kQuick, kThorough };
  // True if anything has moved. Thorough: at UCX, aborts and lost peers too; they are looked at now and then
  // in any case.
  bool progress(Look look);
  bool run_worker();
  bool spin(Plan& plan, std::unique_lock<std::mutex>& lock);
  std::string introduction() const;
  void meet_ranks();
  void map_pages();
  RankPage* page_of(int rank) const;
  // Tells the processes of this host. [thread-safe]
  void leave(RankPage::State how);
  bool settled(Plan& plan);
  // Both release the lock while they sleep.
  void sleep_for_bell(std::unique_lock<std::mutex>& lock, const Deadline& deadline);
  void sleep_for_messages(std::unique_lock<std::mutex>& lock, const Deadline& deadline);
  void notice_abort();
  void notice_trouble();
  void send_control(Peer& peer, const Control& control);
  void tell_all(Control::Type type, const std::string& text);
  // Until what has been sent to those who cannot see our page is on its way, or `limit_ns` is over.
  void flush(int64_t limit_ns);
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
  bool crowded_ = false;  // ranks of this host outnumber its cores
  std::atomic<bool> aborted_{false};
  int abort_fd_ = -1;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<Block> own_page_;  // a RankPage
  std::vector<std::string> addresses_, page_tickets_;
  std::vector<ProcessIdentity> processes_;
  std::vector<char> maps_its_host_;  // by rank: it maps the pages of all ranks of its host

  std::mutex mutex_;                         // guards UCX and what follows, and the state of groups and plans
  std::vector<std::unique_ptr<Step>> held_;  // not empty: frozen
  std::map<int, std::unique_ptr<Peer>> peers_;
  std::map<int, std::unique_ptr<Mapping>> pages_;
  Segments segments_;
  Liveness liveness_;
  std::vector<pollfd> poll_entries_;  // the sleeper's
  uint32_t num_progress_ = 0;
  bool messages_ = false;         // some plan in flight has messages in flight
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
  // Steps in flight: by messages, on a board.
  bool by_messages() const;
  bool meets() const;
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
