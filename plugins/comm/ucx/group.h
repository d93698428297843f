// One member's handle on a group: its peers, its numbering of operations, and whether it still works.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "endpoint.h"
#include "transfers.h"

struct tenon_comm_domain {};
struct tenon_comm_group {};
struct tenon_comm_plan {};

namespace tenon::comm_ucx {

class Domain;

// Its state is guarded by the domain's mutex.
class Group : public tenon_comm_group {
 public:
  // Meets the other members through the rendezvous.
  Group(Domain& domain, std::vector<int> members);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  Domain& domain() { return domain_; }
  const Worker& worker() const;
  int size() const { return static_cast<int>(members_.size()); }
  int me() const { return me_; }
  int rank_of(int member) const { return members_[static_cast<size_t>(member)]; }
  bool has_rank(int rank) const;
  Peer& peer(int member) { return *peers_[static_cast<size_t>(member)]; }
  // Connects this member with itself; for sends to oneself.
  void connect_self();
  uint16_t id() const { return id_; }
  uint16_t remote_id(int member) const { return remote_ids_[static_cast<size_t>(member)]; }
  // "[0, 2, 4]"
  std::string text() const;
  uint64_t next_number(const comm::Op& op);

  // Some peer of this domain is gone, so look before waiting.
  bool has_trouble() const;
  // See Domain::freeze.
  bool worker_frozen() const;
  // The first failure ends the group for all its members: messages of a broken operation would be taken for
  // another's.
  const std::optional<Problem>& failure() const { return failure_; }
  void fail(const Problem& problem, bool tell_others);

 private:
  Domain& domain_;
  const std::vector<int> members_;
  const int me_;
  uint16_t id_ = 0;
  std::vector<uint16_t> remote_ids_;
  std::vector<Peer*> peers_;  // NULL for me, until connect_self()
  uint64_t num_collectives_ = 0;
  std::vector<uint64_t> num_sends_, num_receives_;  // by the other member
  std::optional<Problem> failure_;
};

}  // namespace tenon::comm_ucx
