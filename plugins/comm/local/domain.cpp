#include "domain.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tenon_sdk/comm/members.hpp"

namespace tenon::comm_local {

using comm::Deadline;
using comm::Op;
using sdk::Failure;

namespace {

std::string problem_of_abort(int rank) { return "rank " + std::to_string(rank) + " has aborted its domain"; }

}  // namespace

Domain::Domain(const tenon_comm_config& config, std::shared_ptr<Hub> hub)
    : rank_(config.rank),
      timeout_ns_(config.timeout_ns),
      crowded_(config.world > static_cast<int>(std::thread::hardware_concurrency())),
      hub_(std::move(hub)) {}

Domain::~Domain() {
  hub_->leave(rank_, RankState::kClosed);
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

uint64_t Domain::next_ordinal(const std::vector<int>& members) {
  const std::lock_guard lock(mutex_);
  return ordinals_[members]++;
}

void Domain::start(Plan& plan) {
  const std::lock_guard lock(mutex_);
  if (plan.state() == Plan::State::kInFlight) throw Failure(TENON_E_STATE, "the plan is in flight already");
  if (plan.state() == Plan::State::kFailed) throw Failure(plan.problem().code, plan.problem().text);
  if (hub_->state(rank_) != RankState::kActive) throw Failure(TENON_E_ABORTED, problem_of_abort(rank_));
  in_flight_.reserve(in_flight_.size() + 1);
  plan.start();
  in_flight_.push_back(&plan);
  progress();
}

// All plans, not only the one that is waited for: a peer may need our part of another one first.
void Domain::progress() {
  if (hub_->state(rank_) == RankState::kAborted) {
    for (Plan* plan : in_flight_) plan->fail({TENON_E_PEER, problem_of_abort(rank_)});
    in_flight_.clear();
    return;
  }
  std::erase_if(in_flight_, [](Plan* plan) { return plan->progress(); });
}

bool Domain::settled(Plan& plan) {
  switch (plan.state()) {
    case Plan::State::kInFlight: return false;
    case Plan::State::kDone: return true;
    case Plan::State::kIdle: throw Failure(TENON_E_STATE, "the plan has not been started");
    default: break;
  }
  const bool aborted = hub_->state(rank_) == RankState::kAborted;
  throw Failure(aborted ? TENON_E_ABORTED : plan.problem().code, plan.problem().text);
}

tenon_code Domain::test(Plan& plan) {
  const std::lock_guard lock(mutex_);
  progress();
  return settled(plan) ? TENON_OK : TENON_PENDING;
}

void Domain::wait(Plan& plan, int64_t timeout_ns) {
  const int64_t limit = timeout_ns < 0 ? timeout_ns_ : timeout_ns;
  const Deadline deadline = comm::deadline_in(limit);
  comm::Bell& bell = hub_->bell(rank_);
  bool in_time = true;
  while (true) {
    const uint32_t seen = bell.count();
    {
      const std::lock_guard lock(mutex_);
      progress();
      if (settled(plan)) return;
      if (!in_time) {
        plan.fail(plan.timeout(limit));
        std::erase(in_flight_, &plan);
        if (settled(plan)) return;
      }
    }
    in_time = look_for(bell, seen) || bell.sleep(seen, deadline, comm::Sharing::kProcess);
  }
}

// For a few microseconds. Where ranks outnumber cores the others get the core between two looks.
bool Domain::look_for(comm::Bell& bell, uint32_t seen) const {
  constexpr int kLooks = 100;
  constexpr auto kLooking = std::chrono::microseconds(20);
  const auto end = std::chrono::steady_clock::now() + kLooking;
  for (int look = 0; look < kLooks; ++look) {
    if (bell.count() != seen) return true;
    if (!crowded_) {
      __builtin_ia32_pause();
      continue;
    }
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return false;
}

void Domain::enroll() {
  const std::lock_guard lock(mutex_);
  in_flight_.reserve(++num_plans_);
}

void Domain::withdraw() {
  const std::lock_guard lock(mutex_);
  --num_plans_;
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

GroupHandle::GroupHandle(Domain& domain, const std::vector<int>& members)
    : domain_(domain),
      me_(comm::index_of(members, domain.rank(), domain.hub().world())),
      ordinal_(domain.next_ordinal(members)),
      group_(domain.hub().open_group(members, ordinal_)),
      num_sends_(members.size()),
      num_receives_(members.size()) {}

GroupHandle::~GroupHandle() { domain_.hub().close_group(group_, ordinal_); }

Key GroupHandle::next_key(const Op& op) {
  const auto peer = static_cast<size_t>(op.peer);
  if (op.kind == TENON_COMM_SEND) return {me_, op.peer, num_sends_[peer]++};
  if (op.kind == TENON_COMM_RECV) return {op.peer, me_, num_receives_[peer]++};
  return {-1, -1, num_collectives_++};
}

Plan::Plan(GroupHandle& group, const tenon_comm_op* const* ops, uint32_t num_ops) : group_(group) {
  for (uint32_t i = 0; i < num_ops; ++i) {
    Op op = comm::check_op(*ops[i], group.me(), group.group().size());
    const comm::Reducer reducer = comm::reduces(op.kind) ? comm::find_reducer(op.reduce, op.dtype) : nullptr;
    if (comm::reduces(op.kind) && reducer == nullptr) {
      throw Failure(TENON_E_UNSUPPORTED, comm::describe(op) + ": no such reduction for this dtype");
    }
    steps_.push_back(std::make_unique<Step>(std::move(op), reducer));
  }
  group.group().reserve(num_ops);
  domain().enroll();
}

Plan::~Plan() {
  domain().withdraw();
  // The instances of a failed plan may wait for members that never come: they keep their room.
  if (state_ != State::kFailed) group_.group().unreserve(static_cast<uint32_t>(steps_.size()));
}

void Plan::start() {
  for (const auto& step : steps_) {
    step->worked = false;
    step->instance = &group_.group().post(group_.next_key(step->op), step->op);
  }
  state_ = State::kInFlight;
}

bool Plan::progress() {
  bool finished = true;
  for (const auto& step : steps_) {
    if (step->instance == nullptr) continue;
    if (const std::optional<Problem> problem = progress(*step)) {
      fail(*problem);
      return true;
    }
    finished = finished && step->instance == nullptr;
  }
  if (finished) state_ = State::kDone;
  return finished;
}

// All have arrived: their operations tell where their memory is.
void Plan::do_part(Step& step) {
  std::vector<comm::Reach>& members = step.work.members();
  for (size_t k = 0; k < members.size(); ++k) {
    const Op& theirs = *step.instance->ops[k];
    members[k] = {theirs.src, theirs.dst, 0};
    if (step.op.kind == TENON_COMM_ALL_TO_ALL)
      members[k].src_begin = theirs.src_offsets[static_cast<size_t>(step.op.me)];
  }
  step.work.run(true, [] { return false; });
}

std::optional<Problem> Plan::progress(Step& step) {
  Group& group = group_.group();
  Instance& instance = *step.instance;
  if (!step.worked && instance.all_arrived() && group.enter_work(instance)) {
    do_part(step);
    group.leave_work(instance);
    step.worked = true;
  }
  if (step.worked && instance.all_done()) {
    group.leave(instance);
    step.instance = nullptr;
    return std::nullopt;
  }
  return group.obstacle(instance, step.op);
}

void Plan::fail(const Problem& problem) {
  state_ = State::kDone;
  for (const auto& step : steps_) {
    if (step->instance == nullptr) continue;
    const std::optional<Problem> ended = group_.group().fail(*step->instance, problem);
    step->instance = nullptr;
    if (!ended || state_ == State::kFailed) continue;
    state_ = State::kFailed;
    problem_ = *ended;
  }
}

Problem Plan::timeout(int64_t waited_ns) {
  const std::string waited =
      "rank " + std::to_string(domain().rank()) + " waited " + comm::seconds_text(waited_ns) + " for ";
  for (const auto& step : steps_) {
    if (step->instance == nullptr) continue;
    return {TENON_E_TIMEOUT, waited + group_.group().title(*step->instance, step->op) + "; " +
                                 group_.group().waiting_for(*step->instance)};
  }
  return {TENON_E_TIMEOUT, waited + "nothing"};
}

}  // namespace tenon::comm_local
