// One member's handle on a group: its peers, its numbering of operations, and whether it still works.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "board.h"
#include "endpoint.h"
#include "meeting.h"
#include "tenon_sdk/comm/table.hpp"
#include "transfers.h"

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
  // Whether this operation can be done on the board: the members share memory, and it has a ring.
  bool has_board_for(const comm::Op& op) const {
    return board_ && (!comm::pairwise(op.kind) || board_->has_pairs());
  }
  const Board& board() const { return *board_; }
  // The ring in which the members meet for `op`, made at the first call.
  Sequence& sequence_of(const comm::Op& op);
  // What the member that failed first has written.
  Problem failure_on_board() const;
  // Takes over a failure that another member has put on the board.
  void look_at_board() {
    if (board_ && !failure_ && board_->failed()) fail(failure_on_board(), false);
  }

  // Some peer of this domain is gone, so look before waiting.
  bool has_trouble() const;
  // See Domain::freeze.
  bool worker_frozen() const;
  // The first failure ends the group for all its members: messages of a broken operation would be taken for
  // another's.
  const std::optional<Problem>& failure() const { return failure_; }
  // `tell_others`: by message, where there is no board; on a board it is told in any case.
  void fail(const Problem& problem, bool tell_others);

 private:
  void open_board(const std::string& ticket);
  void put_on_board(const Problem& problem);
  Domain& domain_;
  const std::vector<int> members_;
  const int me_;
  uint16_t id_ = 0;
  std::vector<uint16_t> remote_ids_;
  std::vector<Peer*> peers_;  // NULL for me, until connect_self()
  uint64_t num_collectives_ = 0;
  std::vector<uint64_t> num_sends_, num_receives_;  // by the other member
  std::optional<Problem> failure_;
  std::unique_ptr<Block> board_memory_;    // the first member's
  std::unique_ptr<Mapping> board_mapped_;  // everyone else's
  std::optional<Board> board_;
  std::map<std::pair<int, bool>, Sequence> sequences_;  // by peer and whether I send; collectives: -1
};

}  // namespace tenon::comm_ucx
