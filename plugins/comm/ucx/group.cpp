#include "group.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "domain.h"
#include "tenon_sdk/comm/members.hpp"

namespace tenon::comm_ucx {

using sdk::Failure;

namespace {

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
      me_(comm::index_of(members_, domain.rank(), domain.world())),
      peers_(members_.size()),
      num_sends_(members_.size()),
      num_receives_(members_.size()) {
  uint64_t ordinal = 0;
  std::string mine;
  {
    const std::lock_guard lock(domain.mutex());
    ordinal = domain.next_ordinal(members_);
    for (int m = 0; m < size(); ++m) {
      if (m != me_) peers_[static_cast<size_t>(m)] = &domain.peer(rank_of(m));
    }
    id_ = domain.add_group(*this);
    mine.assign(reinterpret_cast<const char*>(&id_), sizeof id_);
  }
  try {
    const bool shares_memory = size() > 1 && domain.share_memory(members_);
    if (shares_memory && me_ == 0) {
      const std::lock_guard lock(domain.mutex());
      board_memory_ = std::make_unique<Block>(domain.worker(), Board::bytes(size()));
      mine += board_memory_->ticket();
    }
    std::vector<std::string> all = {mine};
    if (size() > 1) {
      all = exchange(domain.rendezvous(), name_of(members_, ordinal), members_, me_, mine,
                     deadline_in(domain.timeout_ns()), domain.timeout_ns());
    }
    for (const std::string& of_member : all) {
      uint16_t value = 0;
      if (of_member.size() < sizeof value) throw Failure(TENON_E_PEER, "a member gave a malformed group id");
      std::memcpy(&value, of_member.data(), sizeof value);
      remote_ids_.push_back(value);
    }
    if (shares_memory) open_board(all[0].substr(sizeof id_));
  } catch (...) {
    const std::lock_guard lock(domain.mutex());
    domain.remove_group(*this);
    throw;
  }
}

void Group::open_board(const std::string& ticket) {
  const std::lock_guard lock(domain_.mutex());
  if (me_ != 0) {
    board_mapped_ = domain_.map(rank_of(0), ticket);
    if (board_mapped_ == nullptr) {
      throw Failure(TENON_E_PEER, "the board of group " + text() + " cannot be mapped from rank " +
                                      std::to_string(rank_of(0)));
    }
  }
  board_.emplace(me_ == 0 ? board_memory_->data() : board_mapped_->data(), size());
}

Group::~Group() {
  const std::lock_guard lock(domain_.mutex());
  domain_.remove_group(*this);
  board_.reset();
  board_mapped_.reset();
  board_memory_.reset();
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
  if (board_) return put_on_board(problem);
  if (tell_others) domain_.tell_failed(*this, problem);
}

void Group::put_on_board(const Problem& problem) {
  FailureNote& note = board_->failure();
  uint32_t none = FailureNote::kNone;
  if (!note.state.compare_exchange_strong(none, FailureNote::kBeingWritten)) return;
  note.code = problem.code == TENON_E_ABORTED ? TENON_E_PEER : problem.code;
  put_text(note.text, problem.text);
  note.state.store(FailureNote::kWritten, std::memory_order_seq_cst);
  for (int m = 0; m < size(); ++m) {
    if (m != me_) domain_.ring(rank_of(m));
  }
}

Problem Group::failure_on_board() const {
  if (failure_) return *failure_;
  const FailureNote& note = board_->failure();
  for (int i = 0; i < 1000 && note.state.load() == FailureNote::kBeingWritten; ++i) std::this_thread::yield();
  if (note.state.load() == FailureNote::kWritten) return {note.code, get_text(note.text)};
  return {TENON_E_PEER, "a member of group " + text() + " has failed, and has not said why"};
}

Sequence& Group::sequence_of(const comm::Op& op) {
  if (!comm::pairwise(op.kind))
    return sequences_.try_emplace({-1, false}, board_->collectives(), size(), me_).first->second;
  const bool sends = op.kind == TENON_COMM_SEND;
  const Ring ring = sends ? board_->pair(op.me, op.peer) : board_->pair(op.peer, op.me);
  return sequences_.try_emplace({op.peer, sends}, ring, 2, sends ? 0 : 1).first->second;
}

}  // namespace tenon::comm_ucx
