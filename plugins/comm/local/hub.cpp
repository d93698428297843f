#include "hub.h"

#include <unistd.h>

#include <random>

#include "group.h"
#include "tenon_sdk/plugin.hpp"

namespace tenon::comm_local {

using comm::deadline_in;
using comm::seconds_text;
using sdk::Failure;

namespace {

// Hubs whose ranks are still meeting, by a random token: a rank that comes after rank 0 has given up finds
// nothing, where an address would dangle.
class Registry {
 public:
  static Registry& instance() {
    static Registry registry;
    return registry;
  }
  uint64_t add(const std::shared_ptr<Hub>& hub) {
    const std::lock_guard lock(mutex_);
    std::random_device random;
    const uint64_t token = (uint64_t{random()} << 32) | random();
    hubs_[token] = hub;
    return token;
  }
  std::shared_ptr<Hub> find(uint64_t token) {
    const std::lock_guard lock(mutex_);
    const auto found = hubs_.find(token);
    return found == hubs_.end() ? nullptr : found->second.lock();
  }
  void remove(uint64_t token) {
    const std::lock_guard lock(mutex_);
    hubs_.erase(token);
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<Hub>> hubs_;
};

constexpr const char* kKey = "comm.local/hub";

struct Invitation {
  uint64_t token = 0;
  int64_t pid = 0;
  int32_t world = 0;
  int32_t reserved = 0;
};

tenon_error empty_error() {
  tenon_error error{};
  error.struct_size = sizeof error;
  return error;
}

std::shared_ptr<Hub> accept_invitation(const tenon_comm_config& config) {
  Invitation invitation;
  uint64_t size = sizeof invitation;
  tenon_error error = empty_error();
  const tenon_code code =
      config.rendezvous->get(config.rendezvous, kKey, &invitation, &size, config.timeout_ns, &error);
  if (code < 0) throw Failure(code, std::string("waiting for rank 0: ") + error.message);
  if (size != sizeof invitation) throw Failure(TENON_E_PEER, "rank 0 runs another version of comm/local");
  std::shared_ptr<Hub> hub;
  if (invitation.pid == getpid()) hub = Registry::instance().find(invitation.token);
  if (hub == nullptr && invitation.pid != getpid()) {
    throw Failure(TENON_E_ARGUMENT,
                  "comm/local joins virtual ranks of one process, but rank 0 runs in process " +
                      std::to_string(invitation.pid) + " and rank " + std::to_string(config.rank) +
                      " in process " + std::to_string(getpid()) + "; use comm/ucx between processes");
  }
  if (hub == nullptr)
    throw Failure(TENON_E_PEER, "rank 0 has given up opening the domain, or is in another process");
  if (invitation.world != config.world) {
    throw Failure(TENON_E_ARGUMENT, "rank 0 opened a world of " + std::to_string(invitation.world) +
                                        ", rank " + std::to_string(config.rank) + " one of " +
                                        std::to_string(config.world));
  }
  return hub;
}

}  // namespace

Hub::Hub(int world) : world_(world), ranks_(static_cast<size_t>(world)) {}

void Hub::leave(int rank, RankState how) {
  std::atomic<RankState>& state = ranks_[static_cast<size_t>(rank)].state;
  RankState active = RankState::kActive;
  if (!state.compare_exchange_strong(active, how) && how == RankState::kClosed) state.store(how);
  for (Rank& other : ranks_) other.bell.ring(comm::Sharing::kProcess);
}

std::string Hub::absent_ranks() const {
  std::string out;
  for (int r = 0; r < world_; ++r) {
    if (state(r) == RankState::kAbsent) out += " " + std::to_string(r);
  }
  return out;
}

void Hub::meet(int rank, const Deadline& deadline, int64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  if (!failed_.empty()) throw Failure(TENON_E_PEER, failed_);
  if (state(rank) != RankState::kAbsent) {
    throw Failure(TENON_E_ARGUMENT, "two virtual ranks say they are rank " + std::to_string(rank));
  }
  ranks_[static_cast<size_t>(rank)].state = RankState::kActive;
  if (++num_met_ == world_) met_.notify_all();
  while (num_met_ < world_ && failed_.empty()) {
    if (!deadline) {
      met_.wait(lock);
    } else if (met_.wait_until(lock, *deadline) == std::cv_status::timeout && num_met_ < world_) {
      failed_ = "rank " + std::to_string(rank) + " waited " + seconds_text(timeout_ns) +
                " for all ranks to open the domain; not come: rank" + absent_ranks();
      met_.notify_all();
      throw Failure(TENON_E_TIMEOUT, failed_);
    }
  }
  if (!failed_.empty()) throw Failure(TENON_E_TIMEOUT, failed_);
}

std::shared_ptr<Group> Hub::open_group(const std::vector<int>& members, uint64_t ordinal) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Group>& group = groups_[{members, ordinal}];
  if (group == nullptr) group = std::make_shared<Group>(*this, members);
  return group;
}

void Hub::close_group(const std::shared_ptr<Group>& group, uint64_t ordinal) {
  const std::lock_guard lock(mutex_);
  if (group->close_one()) groups_.erase({group->members(), ordinal});
}

std::shared_ptr<Hub> join_hub(const tenon_comm_config& config) {
  const Deadline deadline = deadline_in(config.timeout_ns);
  if (config.rank != 0) {
    std::shared_ptr<Hub> hub = accept_invitation(config);
    hub->meet(config.rank, deadline, config.timeout_ns);
    return hub;
  }
  auto hub = std::make_shared<Hub>(config.world);
  const Invitation invitation{Registry::instance().add(hub), getpid(), config.world, 0};
  struct Withdraw {
    uint64_t token;
    ~Withdraw() { Registry::instance().remove(token); }
  } withdraw{invitation.token};
  tenon_error error = empty_error();
  const tenon_code code =
      config.rendezvous->set(config.rendezvous, kKey, &invitation, sizeof invitation, &error);
  if (code < 0) throw Failure(code, std::string("inviting the other ranks: ") + error.message);
  hub->meet(0, deadline, config.timeout_ns);
  return hub;
}

}  // namespace tenon::comm_local
