#include "group.h"

#include <algorithm>
#include <cstring>

#include "domain.h"

namespace tenon::comm_ucx {

using sdk::Failure;

namespace {

int index_of(const std::vector<int>& members, int rank, int world) {
  for (const int member : members) {
    if (member < 0 || member >= world) {
      throw Failure(TENON_E_ARGUMENT,
                    "rank " + std::to_string(member) + " in a world of " + std::to_string(world));
    }
    if (std::count(members.begin(), members.end(), member) > 1) {
      throw Failure(TENON_E_ARGUMENT, "rank " + std::to_string(member) + " is twice in the group");
    }
  }
  const auto found = std::find(members.begin(), members.end(), rank);
  if (found == members.end()) {
    throw Failure(TENON_E_ARGUMENT, "rank " + std::to_string(rank) + " opens a group that it is not in");
  }
  return static_cast<int>(found - members.begin());
}

// 128 bits of the members' list: a name that fits into a key whatever the world.
std::string name_of(const std::vector<int>& members, uint64_t ordinal) {
  uint64_t a = 0xcbf29ce484222325u, b = 0x9e3779b97f4a7c15u;
  for (const int member : members) {
    a = (a ^ static_cast<uint64_t>(member)) * 0x100000001b3u;
    b = (b + static_cast<uint64_t>(member) + 1) * 0xff51afd7ed558ccdu;
    b ^= b >> 33;
  }
  char text[96];
  std::snprintf(text, sizeof text, "comm.ucx/group/%016llx%016llx/%llu", static_cast<unsigned long long>(a),
                static_cast<unsigned long long>(b), static_cast<unsigned long long>(ordinal));
  return text;
}

}  // namespace

Group::Group(Domain& domain, std::vector<int> members)
    : domain_(domain),
      members_(std::move(members)),
      me_(index_of(members_, domain.rank(), domain.world())),
      peers_(members_.size()),
      num_sends_(members_.size()),
      num_receives_(members_.size()) {
  uint64_t ordinal = 0;
  {
    const std::lock_guard lock(domain.mutex());
    ordinal = domain.next_ordinal(members_);
    for (int m = 0; m < size(); ++m) {
      if (m != me_) peers_[static_cast<size_t>(m)] = &domain.peer(rank_of(m));
    }
    id_ = domain.add_group(*this);
  }
  try {
    const std::string mine(reinterpret_cast<const char*>(&id_), sizeof id_);
    std::vector<std::string> ids = {mine};
    if (size() > 1) {
      ids = exchange(domain.rendezvous(), name_of(members_, ordinal), members_, me_, mine,
                     deadline_in(domain.timeout_ns()), domain.timeout_ns());
    }
    for (const std::string& id : ids) {
      uint16_t value = 0;
      if (id.size() != sizeof value) throw Failure(TENON_E_PEER, "a member gave a malformed group id");
      std::memcpy(&value, id.data(), sizeof value);
      remote_ids_.push_back(value);
    }
  } catch (...) {
    const std::lock_guard lock(domain.mutex());
    domain.remove_group(*this);
    throw;
  }
}

Group::~Group() {
  const std::lock_guard lock(domain_.mutex());
  domain_.remove_group(*this);
}

const Worker& Group::worker() const { return domain_.worker(); }
bool Group::worker_frozen() const { return domain_.frozen(); }
bool Group::has_trouble() const { return domain_.has_trouble(); }

bool Group::has_rank(int rank) const {
  return std::find(members_.begin(), members_.end(), rank) != members_.end();
}

void Group::connect_self() { peers_[static_cast<size_t>(me_)] = &domain_.peer(domain_.rank()); }

std::string Group::text() const {
  std::string out = "[";
  for (size_t i = 0; i < members_.size(); ++i) {
    if (i == 16) return out + ", ...]";
    out += (i == 0 ? "" : ", ") + std::to_string(members_[i]);
  }
  return out + "]";
}

uint64_t Group::next_number(const comm::Op& op) {
  const auto peer = static_cast<size_t>(op.peer);
  if (op.kind == TENON_COMM_SEND) return num_sends_[peer]++;
  if (op.kind == TENON_COMM_RECV) return num_receives_[peer]++;
  return num_collectives_++;
}

void Group::fail(const Problem& problem, bool tell_others) {
  if (failure_) return;
  failure_ = problem;
  if (tell_others) domain_.tell_failed(*this, problem);
}

}  // namespace tenon::comm_ucx
