#include "domain.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

namespace tenon::comm_ucx {

using sdk::Failure;

namespace {

constexpr int64_t kMs = 1'000'000;
// UCX refuses to be armed once or twice after each wake-up, until it has taken the old signals.
constexpr int kRetries = 4;

std::vector<int> all_ranks(int world) {
  std::vector<int> out(static_cast<size_t>(world));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

std::string abort_text(int rank) { return "rank " + std::to_string(rank) + " has aborted its domain"; }

}  // namespace

Domain::Domain(const tenon_comm_config& config, const std::string& tls)
    : rank_(config.rank),
      world_(config.world),
      timeout_ns_(config.timeout_ns),
      rendezvous_(*config.rendezvous),
      worker_(std::make_unique<Worker>(tls)) {
  const ProcessIdentity own = ProcessIdentity::own();
  const std::string mine(reinterpret_cast<const char*>(&own), sizeof own);
  addresses_ = exchange(rendezvous_, "comm.ucx/address", all_ranks(world_), rank_, mine + worker_->address(),
                        deadline_in(timeout_ns_), timeout_ns_);
  int on_this_host = 0;
  for (std::string& address : addresses_) {
    if (address.size() <= sizeof own) throw Failure(TENON_E_PEER, "a rank gave a malformed address");
    std::memcpy(&processes_.emplace_back(), address.data(), sizeof own);
    on_this_host += own.on_host_of(processes_.back()) ? 1 : 0;
    address.erase(0, sizeof own);
  }
  // A few microseconds; nearly none when ranks outnumber cores, where a spinning rank keeps its peer from
  // running.
  spins_ = on_this_host <= static_cast<int>(std::thread::hardware_concurrency()) ? 200 : 2;
  abort_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (abort_fd_ < 0) throw Failure(TENON_E_IO, "eventfd failed", "errno", errno);
  receive_control();
}

Domain::~Domain() {
  std::unique_lock lock(mutex_);
  const bool well = healthy_ && !aborted();
  if (!frozen()) {
    tell_all(aborted() ? Control::kAborted : Control::kClosed,
             aborted() ? abort_text(rank_) : "rank " + std::to_string(rank_) + " has closed its domain");
  }
  if (well) linger(lock);
  closing_ = true;
  if (control_request_ != nullptr && !frozen()) ucp_request_cancel(worker_->get(), control_request_);
  for (auto& [rank, peer] : peers_) {
    if (frozen()) {
      peer->abandon();
    } else {
      peer->close(well ? 0.5 : 0.1);
    }
  }
  peers_.clear();
  worker_.reset();
  close(abort_fd_);
  for (void* pointer : allocated_) std::free(pointer);
}

void* Domain::allocate(uint64_t bytes) {
  constexpr uint64_t kHugePage = uint64_t{2} << 20;
  const uint64_t alignment = bytes >= kHugePage ? kHugePage : 64;
  if (bytes > UINT64_MAX / 2)
    throw Failure(TENON_E_MEMORY, "cannot allocate " + std::to_string(bytes) + " bytes");
  const uint64_t size = (std::max<uint64_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* pointer = std::aligned_alloc(alignment, size);
  if (pointer == nullptr)
    throw Failure(TENON_E_MEMORY, "cannot allocate " + std::to_string(bytes) + " bytes");
  if (alignment == kHugePage) madvise(pointer, size, MADV_HUGEPAGE);  // only advice
  std::memset(pointer, 0, size);
  const std::lock_guard lock(mutex_);
  allocated_.insert(pointer);
  return pointer;
}

void Domain::release(void* pointer) {
  const std::lock_guard lock(mutex_);
  if (allocated_.erase(pointer) > 0) std::free(pointer);
}

void Domain::abort() {
  aborted_ = true;
  eventfd_write(abort_fd_, 1);  // stays readable: there is no way back
}

Peer& Domain::peer(int rank) {
  const auto index = static_cast<size_t>(rank);
  std::unique_ptr<Peer>& peer = peers_[rank];
  if (peer != nullptr) return *peer;
  peer = std::make_unique<Peer>(*worker_, rank, addresses_[index]);
  if (rank != rank_) liveness_.watch(rank, processes_[index]);
  return *peer;
}

uint16_t Domain::add_group(Group& group) {
  if (next_group_ >= kControlGroup)
    throw Failure(TENON_E_STATE, "a domain opens at most 65535 groups in its life");
  const auto id = static_cast<uint16_t>(next_group_++);
  groups_[id] = &group;
  return id;
}

void Domain::remove_group(const Group& group) { groups_.erase(group.id()); }

void Domain::start(Plan& plan) {
  const std::lock_guard lock(mutex_);
  if (aborted()) throw Failure(TENON_E_ABORTED, abort_text(rank_));
  if (plan.state() == Plan::State::kInFlight) throw Failure(TENON_E_STATE, "the plan is in flight already");
  progress();  // a failure of the group may have been told
  if (plan.state() != Plan::State::kFailed) plan.start();
  if (plan.state() == Plan::State::kFailed) throw Failure(plan.problem().code, plan.problem().text);
  in_flight_.push_back(&plan);
  progress();
}

// All plans, not only the one that is waited for: a peer may need our part of another one first.
bool Domain::progress() {
  const bool moved = run_worker();
  // For callers who test() and never sleep.
  if (++num_progress_ % 4096 == 0) liveness_.look();
  notice_abort();
  notice_trouble();
  const size_t before = in_flight_.size();
  std::erase_if(in_flight_, [](Plan* plan) { return plan->progress(); });
  outgoing_.remove_if([](const Outgoing& o) { return o.sent; });
  return moved || in_flight_.size() != before;
}

bool Domain::run_worker() {
  if (frozen()) return false;
  constexpr int kMostRounds = 64;  // rounds, so that a flood of messages cannot keep the caller
  bool moved = false;
  for (int i = 0; i < kMostRounds && worker_->progress() > 0; ++i) moved = true;
  if (control_came_) take_control();
  return moved;
}

void Domain::freeze(std::unique_ptr<Step> step) {
  healthy_ = false;
  held_.push_back(std::move(step));
  for (auto& [id, group] : groups_) {
    group->fail({TENON_E_PEER, "this domain stands still since " + held_.front()->title() +
                                   " ended in the middle of a message; open a new one"},
                false);
  }
}

bool Domain::settled(Plan& plan) {
  switch (plan.state()) {
    case Plan::State::kInFlight: return false;
    case Plan::State::kDone: return true;
    case Plan::State::kIdle: throw Failure(TENON_E_STATE, "the plan has not been started");
    default: break;
  }
  if (aborted()) throw Failure(TENON_E_ABORTED, abort_text(rank_) + "; " + plan.problem().text);
  throw Failure(plan.problem().code, plan.problem().text);
}

tenon_code Domain::test(Plan& plan) {
  const std::lock_guard lock(mutex_);
  progress();
  return settled(plan) ? TENON_OK : TENON_PENDING;
}

void Domain::wait(Plan& plan, int64_t timeout_ns) {
  const int64_t limit = timeout_ns < 0 ? timeout_ns_ : timeout_ns;
  const Deadline deadline = deadline_in(limit);
  int idle = 0;
  while (true) {
    std::unique_lock lock(mutex_);
    const bool late = passed(deadline);
    const bool moved = progress();
    if (settled(plan)) return;
    if (late) {
      plan.time_out(limit);
      std::erase(in_flight_, &plan);
      if (settled(plan)) return;
    }
    idle = moved ? 0 : idle + 1;
    if (idle < spins_) continue;
    if (worker_->arm()) {
      sleep(lock, deadline);
      idle = 0;
    } else if (idle > spins_ + kRetries) {
      // There is something to do, but nothing moves: a peer has no room for us, and may need this core to
      // make some.
      lock.unlock();
      sched_yield();
    }
  }
}

// Until UCX has something, an abort, the end of a peer, or a tenth of a second: UCX's keepalive and our grace
// periods need looking after.
void Domain::sleep(std::unique_lock<std::mutex>& lock, const Deadline& deadline) {
  int64_t limit = (liveness_.pending() ? 10 : 100) * kMs;
  if (deadline) limit = std::min(limit, remaining_ns(deadline));
  const timespec timeout{limit / 1'000'000'000, limit % 1'000'000'000};
  poll_entries_ = liveness_.entries();
  poll_entries_.push_back({worker_->event_fd(), POLLIN, 0});
  poll_entries_.push_back({abort_fd_, POLLIN, 0});
  lock.unlock();
  const int rc = ppoll(poll_entries_.data(), poll_entries_.size(), &timeout, nullptr);
  lock.lock();
  if (rc > 0) liveness_.see(poll_entries_.data(), poll_entries_.size() - 2);
}

void Domain::finish(Plan& plan) {
  {
    const std::lock_guard lock(mutex_);
    progress();
    if (plan.state() != Plan::State::kInFlight) return;
  }
  try {
    wait(plan, -1);
  } catch (const Failure&) {
    // Whoever releases a plan has given up on its result.
  }
}

void Domain::notice_abort() {
  if (!aborted() || abort_noticed_) return;
  abort_noticed_ = true;
  healthy_ = false;
  tell_all(Control::kAborted, abort_text(rank_));
  for (auto& [id, group] : groups_) group->fail({TENON_E_ABORTED, abort_text(rank_)}, false);
}

// A rank that closed its domain ends only what waits for it; one that is lost or aborted ends its groups.
void Domain::notice_trouble() {
  for (const int rank : liveness_.take_ended()) {
    peers_[rank]->set_lost("rank " + std::to_string(rank) + " is lost: its process " +
                           std::to_string(processes_[static_cast<size_t>(rank)].pid) + " has ended");
  }
  for (auto& [rank, peer] : peers_) {
    if (peer->usable() || !left_.insert(rank).second) continue;
    has_trouble_ = true;
    healthy_ = false;
    for (auto& [id, group] : groups_) {
      if (group->has_rank(rank)) group->fail({TENON_E_PEER, peer->trouble()}, true);
    }
  }
}

void Domain::tell_failed(Group& group, const Problem& problem) {
  healthy_ = false;
  Control control;
  control.type = Control::kGroupFailed;
  control.rank = rank_;
  control.code = problem.code;
  put_text(control.text, problem.text);
  for (int m = 0; m < group.size(); ++m) {
    if (m == group.me() || !group.peer(m).connected()) continue;
    control.group = group.remote_id(m);
    send_control(group.peer(m), control);
  }
}

void Domain::tell_all(Control::Type type, const std::string& text) {
  Control control;
  control.type = type;
  control.rank = rank_;
  put_text(control.text, text);
  for (auto& [rank, peer] : peers_) {
    if (rank != rank_ && peer->connected()) send_control(*peer, control);
  }
}

void Domain::send_control(Peer& peer, const Control& control) {
  Outgoing& message = outgoing_.emplace_back();
  message.body = control;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = on_control_sent;
  params.user_data = &message;
  const ucs_status_ptr_t request =
      ucp_tag_send_nbx(peer.get(), &message.body, sizeof message.body, kControlTag, &params);
  if (!UCS_PTR_IS_PTR(request))
    message.sent = true;  // or refused: then the peer learns from the connection's end
}

void Domain::on_control_sent(void* request, ucs_status_t, void* outgoing) {
  static_cast<Outgoing*>(outgoing)->sent = true;
  ucp_request_free(request);
}

void Domain::receive_control() {
  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.cb.recv = on_control_received;
  params.user_data = this;
  const ucs_status_ptr_t request =
      ucp_tag_recv_nbx(worker_->get(), &incoming_, sizeof incoming_, kControlTag, kMatchGroup, &params);
  if (UCS_PTR_IS_ERR(request)) {
    throw ucx_failure(TENON_E_IO, "waiting for control messages", UCS_PTR_STATUS(request));
  }
  control_request_ = request;
}

void Domain::on_control_received(void* request, ucs_status_t, const ucp_tag_recv_info_t*, void* domain) {
  auto* self = static_cast<Domain*>(domain);
  self->control_request_ = nullptr;
  self->control_came_ = true;
  ucp_request_free(request);
}

void Domain::take_control() {
  while (control_came_ && !closing_) {
    control_came_ = false;
    const Control control = incoming_;
    receive_control();
    hear(control);
    worker_->progress();
  }
}

void Domain::hear(const Control& control) {
  const auto peer = peers_.find(control.rank);
  if (peer == peers_.end()) return;
  if (control.type == Control::kClosed) {
    left_.insert(control.rank);
    has_trouble_ = true;
  }
  if (control.type == Control::kClosed || control.type == Control::kAborted) {
    peer->second->set_left(get_text(control.text));
  }
  if (control.type != Control::kGroupFailed) return;
  const auto group = groups_.find(static_cast<uint16_t>(control.group));
  if (group == groups_.end()) return;
  healthy_ = false;
  group->second->fail({control.code < 0 ? control.code : TENON_E_PEER, get_text(control.text)}, false);
}

bool Domain::all_others_left() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [&](const auto& entry) { return entry.first == rank_ || !entry.second->usable(); });
}

void Domain::linger(std::unique_lock<std::mutex>& lock) {
  const Deadline deadline = deadline_in(2000 * kMs);
  while (!all_others_left() && !passed(deadline) && !aborted()) {
    if (!progress() && worker_->arm()) sleep(lock, deadline);
  }
}

}  // namespace tenon::comm_ucx
