#include "group.h"

#include <algorithm>

#include "tenon_sdk/comm/members.hpp"

namespace tenon::comm_local {

using comm::Op;
using comm::rank_list;
using sdk::Failure;

namespace {

size_t slot_of(const Op& op) {
  if (op.kind == TENON_COMM_SEND) return 0;
  if (op.kind == TENON_COMM_RECV) return 1;
  return static_cast<size_t>(op.me);
}

}  // namespace

void Group::reserve(uint32_t num_ops) {
  const std::lock_guard lock(mutex_);
  reserved_ += num_ops;
  while (all_.size() < reserved_) {
    auto instance = std::make_unique<Instance>();
    instance->ops.assign(std::max<size_t>(2, members_.size()), nullptr);
    all_.push_back(std::move(instance));
    free_.reserve(all_.size());
    live_.reserve(all_.size());
    free_.push_back(all_.back().get());
  }
}

void Group::unreserve(uint32_t num_ops) {
  const std::lock_guard lock(mutex_);
  reserved_ -= num_ops;
}

Instance& Group::post(const Key& key, const Op& op) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(live_.begin(), live_.end(), [&](const Instance* i) { return i->key == key; });
  Instance* instance = found != live_.end() ? *found : nullptr;
  if (instance == nullptr) {
    if (free_.empty())
      throw Failure(TENON_E_INTERNAL, "comm/local: more operations in flight than were prepared");
    instance = free_.back();
    free_.pop_back();
    live_.push_back(instance);
    instance->key = key;
    instance->expected = comm::pairwise(op.kind) ? 2 : static_cast<uint32_t>(members_.size());
  }
  const size_t slot = slot_of(op);
  for (size_t other = 0; other < instance->expected && !instance->failed; ++other) {
    const Op* theirs = instance->ops[other];
    if (theirs == nullptr || comm::agree(*theirs, op)) continue;
    fail_locked(*instance,
                {TENON_E_ARGUMENT, "members disagree on operation " + std::to_string(key.number) +
                                       " of group [" + rank_list(members_) + "]: " +
                                       comm::disagreement(*theirs, rank_of_slot(*instance, other), op,
                                                          members_[static_cast<size_t>(op.me)])});
  }
  instance->ops[slot] = &op;
  instance->arrived.fetch_add(1, std::memory_order_acq_rel);
  if (instance->all_arrived()) ring_parts(*instance);
  return *instance;
}

bool Group::enter_work(Instance& instance) {
  const std::lock_guard lock(mutex_);
  if (instance.failed) return false;
  ++instance.working;
  return true;
}

void Group::leave_work(Instance& instance) {
  const std::lock_guard lock(mutex_);
  --instance.working;
  instance.done.fetch_add(1, std::memory_order_acq_rel);
  if (instance.all_done()) ring_parts(instance);
  if (instance.failed && instance.working == 0) idle_.notify_all();
}

void Group::leave(Instance& instance) {
  const std::lock_guard lock(mutex_);
  leave_locked(instance);
}

std::optional<Problem> Group::fail(Instance& instance, const Problem& problem) {
  std::unique_lock lock(mutex_);
  if (!instance.failed && instance.all_arrived() && instance.all_done()) {
    leave_locked(instance);
    return std::nullopt;
  }
  if (!instance.failed) fail_locked(instance, problem);
  idle_.wait(lock, [&] { return instance.working == 0; });
  const Problem first = instance.problem;
  leave_locked(instance);
  return first;
}

std::optional<Problem> Group::obstacle(Instance& instance, const Op& mine) {
  if (instance.failed) {
    const std::lock_guard lock(mutex_);
    return instance.problem;
  }
  const std::lock_guard lock(mutex_);
  for (size_t slot = 0; slot < instance.expected; ++slot) {
    const int rank = rank_of_slot(instance, slot);
    const RankState state = hub_.state(rank);
    if (state == RankState::kActive) continue;
    // A rank that closed had finished what it had started; one that aborted may have stopped anywhere.
    if (state == RankState::kClosed && instance.ops[slot] != nullptr) continue;
    if (instance.all_arrived() && instance.all_done()) continue;
    const char* how = state == RankState::kAborted ? " has aborted its domain" : " has closed its domain";
    return Problem{TENON_E_PEER,
                   title(instance, mine) + " cannot finish: rank " + std::to_string(rank) + how};
  }
  return std::nullopt;
}

std::string Group::title(const Instance& instance, const Op& mine) const {
  return comm::describe(mine) + " (operation " + std::to_string(instance.key.number) + " of group [" +
         rank_list(members_) + "])";
}

std::string Group::waiting_for(const Instance& instance) {
  const std::lock_guard lock(mutex_);
  const std::vector<int> missing = missing_ranks(instance);
  if (missing.empty()) return "all have arrived, not all have finished";
  return (missing.size() == 1 ? "not arrived: rank " : "not arrived: ranks ") + rank_list(missing);
}

std::vector<int> Group::missing_ranks(const Instance& instance) const {
  std::vector<int> missing;
  for (size_t slot = 0; slot < instance.expected; ++slot) {
    if (instance.ops[slot] == nullptr) missing.push_back(rank_of_slot(instance, slot));
  }
  return missing;
}

int Group::rank_of_slot(const Instance& instance, size_t slot) const {
  if (instance.key.from < 0) return members_[slot];
  return members_[static_cast<size_t>(slot == 0 ? instance.key.from : instance.key.to)];
}

void Group::fail_locked(Instance& instance, const Problem& problem) {
  instance.problem = problem;
  instance.failed = true;
  ring_parts(instance);
}

void Group::leave_locked(Instance& instance) {
  if (++instance.left < instance.expected) return;
  std::fill(instance.ops.begin(), instance.ops.end(), nullptr);
  instance.arrived = 0;
  instance.done = 0;
  instance.failed = false;
  instance.left = 0;
  instance.problem = {};
  live_.erase(std::find(live_.begin(), live_.end(), &instance));
  free_.push_back(&instance);
}

void Group::ring_parts(const Instance& instance) {
  for (size_t slot = 0; slot < instance.expected; ++slot)
    hub_.bell(rank_of_slot(instance, slot)).ring(comm::Sharing::kProcess);
}

}  // namespace tenon::comm_local
