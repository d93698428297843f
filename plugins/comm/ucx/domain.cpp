#include "domain.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <thread>

namespace tenon::comm_ucx {

using comm::kMs;
using sdk::Failure;

namespace {

// UCX refuses to be armed once or twice after each wake-up, until it has taken the old signals.
constexpr int kRetries = 4;

std::vector<int> all_ranks(int world) {
  std::vector<int> out(static_cast<size_t>(world));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

std::string close_text(int rank) { return "rank " + std::to_string(rank) + " has closed its domain"; }
std::string abort_text(int rank) { return "rank " + std::to_string(rank) + " has aborted its domain"; }

}  // namespace

Domain::Domain(const tenon_comm_config& config, const std::string& tls)
    : rank_(config.rank),
      world_(config.world),
      timeout_ns_(config.timeout_ns),
      rendezvous_(*config.rendezvous),
      worker_(std::make_unique<Worker>(tls)),
      own_page_(std::make_unique<Block>(*worker_, sizeof(RankPage))) {
  new (own_page_->data()) RankPage;
  meet_ranks();
  abort_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (abort_fd_ < 0) throw Failure(TENON_E_IO, "eventfd failed", "errno", errno);
  receive_control();
}

// Who I am, how to reach my worker, how to map my page.
std::string Domain::introduction() const {
  const ProcessIdentity own = ProcessIdentity::own();
  const std::string address = worker_->address();
  const auto size = static_cast<uint32_t>(address.size());
  return std::string(reinterpret_cast<const char*>(&own), sizeof own) +
         std::string(reinterpret_cast<const char*>(&size), sizeof size) + address + own_page_->ticket();
}

void Domain::meet_ranks() {
  const Deadline deadline = deadline_in(timeout_ns_);
  const std::vector<int> everyone = all_ranks(world_);
  for (const std::string& text :
       exchange(rendezvous_, "comm.ucx/address", everyone, rank_, introduction(), deadline, timeout_ns_)) {
    ProcessIdentity& process = processes_.emplace_back();
    uint32_t size = 0;
    constexpr size_t kHead = sizeof process + sizeof size;
    if (text.size() >= kHead) std::memcpy(&size, text.data() + sizeof process, sizeof size);
    if (size == 0 || size > text.size() - kHead)
      throw Failure(TENON_E_PEER, "a rank gave a malformed address");
    std::memcpy(&process, text.data(), sizeof process);
    addresses_.push_back(text.substr(kHead, size));
    page_tickets_.push_back(text.substr(kHead + size));
  }
  map_pages();
  const std::string all_mapped(1, maps_its_host_[static_cast<size_t>(rank_)] != 0 ? 'y' : 'n');
  const auto answers =
      exchange(rendezvous_, "comm.ucx/maps", everyone, rank_, all_mapped, deadline, timeout_ns_);
  for (size_t rank = 0; rank < answers.size(); ++rank) maps_its_host_[rank] = answers[rank] == "y" ? 1 : 0;
}

void Domain::map_pages() {
  maps_its_host_.assign(static_cast<size_t>(world_), 1);
  int on_this_host = 1;
  for (int rank = 0; rank < world_; ++rank) {
    const auto index = static_cast<size_t>(rank);
    if (rank == rank_ || !processes_[static_cast<size_t>(rank_)].on_host_of(processes_[index])) continue;
    ++on_this_host;
    std::unique_ptr<Mapping> page = map(rank, page_tickets_[index]);
    if (page == nullptr) {
      maps_its_host_[static_cast<size_t>(rank_)] = 0;
    } else {
      pages_[rank] = std::move(page);
    }
  }
  crowded_ = on_this_host > static_cast<int>(std::thread::hardware_concurrency());
}

bool Domain::share_memory(const std::vector<int>& ranks) const {
  const ProcessIdentity& mine = processes_[static_cast<size_t>(rank_)];
  return std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
    const auto index = static_cast<size_t>(rank);
    return maps_its_host_[index] != 0 && mine.on_host_of(processes_[index]);
  });
}

std::unique_ptr<Mapping> Domain::map(int rank, const std::string& ticket) {
  const Peer& owner = peer(rank);
  return process_has_ended(rank) ? nullptr : Mapping::make(owner, ticket);
}

RankPage* Domain::page_of(int rank) const {
  if (rank == rank_) return reinterpret_cast<RankPage*>(own_page_->data());
  const auto found = pages_.find(rank);
  return found == pages_.end() ? nullptr : reinterpret_cast<RankPage*>(found->second->data());
}

void Domain::ring(int rank) {
  if (RankPage* page = page_of(rank)) page->bell.ring_if_announced(comm::Sharing::kProcesses);
}

void Domain::leave(RankPage::State how) {
  page_of(rank_)->state.store(how, std::memory_order_seq_cst);
  for (const auto& [rank, page] : pages_) ring(rank);
}

bool Domain::process_has_ended(int rank) {
  liveness_.look();
  return liveness_.has_ended(rank);
}

std::string Domain::reason_to_be_gone(int rank) {
  const RankPage* page = page_of(rank);
  if (page != nullptr && page->state.load() == RankPage::kClosed) return close_text(rank);
  return peer(rank).trouble();
}

Domain::~Domain() {
  std::unique_lock lock(mutex_);
  const bool well = healthy_ && !aborted();
  if (!frozen()) {
    if (!aborted()) tell_all(Control::kClosed, close_text(rank_));
    notice_abort();
  }
  if (!aborted()) leave(RankPage::kClosed);
  if (well) linger(lock);
  closing_ = true;
  if (control_request_ != nullptr && !frozen()) ucp_request_cancel(worker_->get(), control_request_);
  segments_.clear();
  pages_.clear();
  own_page_.reset();
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
}

void* Domain::allocate(uint64_t bytes) {
  if (bytes > UINT64_MAX / 2)
    throw Failure(TENON_E_MEMORY, "cannot allocate " + std::to_string(bytes) + " bytes");
  Segments::Segment segment;
  std::string name, ticket;
  {
    const std::lock_guard lock(mutex_);
    segment.block = std::make_unique<Block>(*worker_, std::max<uint64_t>(bytes, 1));
    ticket = segment.block->ticket();
    name = "comm.ucx/segment/" + std::to_string(segments_.next_number());
  }
  std::vector<std::string> tickets;
  if (world_ > 1)
    tickets =
        exchange(rendezvous_, name, all_ranks(world_), rank_, ticket, deadline_in(timeout_ns_), timeout_ns_);
  const std::lock_guard lock(mutex_);
  for (const auto& [rank, page] : pages_) {
    std::unique_ptr<Mapping> mapping = map(rank, tickets[static_cast<size_t>(rank)]);
    if (mapping == nullptr)
      throw Failure(TENON_E_PEER, "the memory of rank " + std::to_string(rank) + " cannot be mapped");
    segment.of_peers[rank] = std::move(mapping);
  }
  void* pointer = segment.block->data();
  segments_.add(std::move(segment));
  return pointer;
}

void Domain::release(void* pointer) {
  const std::lock_guard lock(mutex_);
  segments_.remove(pointer);
}

void Domain::abort() {
  aborted_ = true;
  leave(RankPage::kAborted);
  ring(rank_);
  eventfd_write(abort_fd_, 1);  // stays readable: there is no way back
  // Whoever is inside notices, and so does the next call; but that may be far away.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock && !frozen()) tell_all(Control::kAborted, abort_text(rank_));
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
  notice_abort();
  if (aborted()) throw Failure(TENON_E_ABORTED, abort_text(rank_));
  if (plan.state() == Plan::State::kInFlight) throw Failure(TENON_E_STATE, "the plan is in flight already");
  progress(pages_.empty() ? Look::kThorough : Look::kQuick);  // a failure of the group may have been told
  if (plan.state() != Plan::State::kFailed) plan.start();
  if (plan.state() == Plan::State::kFailed) throw Failure(plan.problem().code, plan.problem().text);
  in_flight_.push_back(&plan);
  progress(Look::kQuick);
}

// All plans, not only the one that is waited for: a peer may need our part of another one first.
bool Domain::progress(Look look) {
  constexpr uint32_t kNowAndThen = 1024;  // for callers who test() and never sleep
  bool moved = false;
  if (++num_progress_ % kNowAndThen == 0) {
    look = Look::kThorough;
    liveness_.look();
  }
  if (look == Look::kThorough || messages_) moved = run_worker();
  notice_abort();
  if (look == Look::kThorough) {
    notice_trouble();
    outgoing_.remove_if([](const Outgoing& o) { return o.sent; });
  }
  const size_t before = in_flight_.size();
  std::erase_if(in_flight_, [](Plan* plan) { return plan->progress(); });
  messages_ =
      std::any_of(in_flight_.begin(), in_flight_.end(), [](Plan* plan) { return plan->by_messages(); });
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
  progress(Look::kQuick);
  return settled(plan) ? TENON_OK : TENON_PENDING;
}

void Domain::wait(Plan& plan, int64_t timeout_ns) {
  const int64_t limit = timeout_ns < 0 ? timeout_ns_ : timeout_ns;
  const Deadline deadline = deadline_in(limit);
  std::unique_lock lock(mutex_);
  int refused = 0;  // how often UCX would not be armed
  while (!spin(plan, lock)) {
    if (passed(deadline)) {
      progress(Look::kThorough);
      if (settled(plan)) return;
      plan.time_out(limit);
      std::erase(in_flight_, &plan);
      if (settled(plan)) return;
    }
    if (!messages_) {
      sleep_for_bell(lock, deadline);
    } else if (worker_->arm()) {
      sleep_for_messages(lock, deadline);
      refused = 0;
    } else if (++refused > kRetries) {
      // There is something to do, but nothing moves: a peer has no room for us, and may need this core to
      // make some.
      lock.unlock();
      sched_yield();
      lock.lock();
    }
  }
}

// Looks until the plan is settled, or nothing has moved for a while.
bool Domain::spin(Plan& plan, std::unique_lock<std::mutex>& lock) {
  progress(Look::kQuick);
  if (settled(plan)) return true;
  // About what it costs to fall asleep and be woken. Where ranks outnumber cores one that looks would keep
  // its peer from running: it lets the others have the core between two looks, which costs less than sleep,
  // too.
  constexpr auto kLooking = std::chrono::microseconds(20);
  const int looks_per_clock = crowded_ ? 1 : 16;
  Clock::time_point end = Clock::now() + kLooking;
  for (int i = 1; i % looks_per_clock != 0 || Clock::now() < end; ++i) {
    if (crowded_) {
      lock.unlock();
      sched_yield();
      lock.lock();
    } else {
      __builtin_ia32_pause();
    }
    const bool moved = progress(Look::kQuick);
    if (settled(plan)) return true;
    if (moved) end = Clock::now() + kLooking;
  }
  return false;
}

// Until a ring, or until the processes of the others need looking after.
void Domain::sleep_for_bell(std::unique_lock<std::mutex>& lock, const Deadline& deadline) {
  comm::Bell& bell = page_of(rank_)->bell;
  const uint32_t seen = bell.count();
  bell.announce();
  if (!progress(Look::kThorough) && !messages_) {
    const Clock::time_point next_look =
        Clock::now() + std::chrono::milliseconds(liveness_.pending() ? 10 : 20);
    lock.unlock();
    bell.sleep(seen, deadline ? std::min(*deadline, next_look) : next_look, comm::Sharing::kProcesses);
    lock.lock();
    liveness_.look();
  }
  bell.withdraw();
}

// Until UCX has something, an abort, the end of a peer, or a tenth of a second: UCX's keepalive and our grace
// periods need looking after. Nobody rings here: what goes over the board meanwhile is looked at often.
void Domain::sleep_for_messages(std::unique_lock<std::mutex>& lock, const Deadline& deadline) {
  const bool meetings = std::any_of(in_flight_.begin(), in_flight_.end(), [](Plan* p) { return p->meets(); });
  int64_t limit = meetings ? kMs / 20 : (liveness_.pending() ? 10 : 100) * kMs;
  if (deadline) limit = std::min(limit, remaining_ns(deadline));
  const timespec timeout{limit / 1'000'000'000, limit % 1'000'000'000};
  poll_entries_ = liveness_.entries();
  poll_entries_.push_back({worker_->event_fd(), POLLIN, 0});
  poll_entries_.push_back({abort_fd_, POLLIN, 0});
  lock.unlock();
  const int rc = ppoll(poll_entries_.data(), poll_entries_.size(), &timeout, nullptr);
  lock.lock();
  if (rc > 0) liveness_.see(poll_entries_.data(), poll_entries_.size() - 2);
  progress(Look::kThorough);
}

void Domain::finish(Plan& plan) {
  {
    const std::lock_guard lock(mutex_);
    progress(Look::kThorough);
    if (plan.state() != Plan::State::kInFlight) return;
  }
  try {
    wait(plan, -1);
  } catch (const Failure&) {
    // Whoever releases a plan has given up on its result.
  }
}

// The caller is about to learn of the abort and may not come back for long: what is told must be on its way
// by then. Before plans are cancelled, which may cut a peer off: one that is not connected yet would not see
// it.
void Domain::notice_abort() {
  if (!aborted() || abort_noticed_) return;
  abort_noticed_ = true;
  healthy_ = false;
  tell_all(Control::kAborted, abort_text(rank_));
  for (auto& [id, group] : groups_) group->fail({TENON_E_ABORTED, abort_text(rank_)}, false);
  flush(2000 * kMs);
}

// A rank that closed its domain ends only what waits for it; one that is lost or aborted ends its groups.
void Domain::notice_trouble() {
  for (const int rank : liveness_.take_ended()) {
    peers_[rank]->set_lost("rank " + std::to_string(rank) + " is lost: its process " +
                           std::to_string(processes_[static_cast<size_t>(rank)].pid) + " has ended");
  }
  for (const auto& [rank, page] : pages_) {
    const uint32_t state = page_of(rank)->state.load();
    if (state == RankPage::kAborted) peers_[rank]->set_left(abort_text(rank));
    // What it has sent may still be on its way: only who meets it on a board learns of a close from here.
    has_trouble_ = has_trouble_ || state != RankPage::kActive;
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

void Domain::flush(int64_t limit_ns) {
  if (frozen()) return;
  std::vector<ucs_status_ptr_t> requests;
  for (auto& [rank, peer] : peers_) {
    if (page_of(rank) == nullptr && peer->connected()) requests.push_back(peer->flush());
  }
  std::erase_if(requests, [](ucs_status_ptr_t r) { return !UCS_PTR_IS_PTR(r); });
  const auto in_progress = [](ucs_status_ptr_t r) { return ucp_request_check_status(r) == UCS_INPROGRESS; };
  const Deadline deadline = deadline_in(limit_ns);
  while (std::any_of(requests.begin(), requests.end(), in_progress) && !passed(deadline)) {
    if (worker_->progress() == 0) poll(nullptr, 0, 1);
  }
  for (const ucs_status_ptr_t request : requests) ucp_request_free(request);
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
  return std::all_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
    const RankPage* page = page_of(entry.first);
    const bool closed = page != nullptr && page->state.load() == RankPage::kClosed;
    return entry.first == rank_ || closed || !entry.second->usable();
  });
}

void Domain::linger(std::unique_lock<std::mutex>& lock) {
  const Deadline deadline = deadline_in(2000 * kMs);
  while (!all_others_left() && !passed(deadline) && !aborted()) {
    if (progress(Look::kThorough) || !worker_->arm()) continue;
    const Deadline soon = deadline_in(5 * kMs);
    sleep_for_messages(lock, soon);
  }
}

}  // namespace tenon::comm_ucx
