#include "transfers.h"

#include <poll.h>

#include <algorithm>
#include <set>

#include "group.h"

namespace tenon::comm_ucx {

using comm::kMs;
using comm::Op;

namespace {

constexpr auto kGrace = std::chrono::milliseconds(500);

}  // namespace

Transfers::Transfers(Group& group, const Op& op, size_t capacity) : group_(group), op_(op), slots_(capacity) {
  my_card_.signature = comm::signature(op);
  put_text(my_card_.text, comm::describe(op));
}

void Transfers::begin(uint64_t number) {
  number_ = number;
  num_used_ = 0;
  problem_.reset();
  suspicion_.reset();
  missed_since_.reset();
  if (comm::pairwise(op_.kind) || op_.n == 1) return;
  card_in_ = {this, nullptr, (op_.me + op_.n - 1) % op_.n, false, true, sizeof(Card), Channel::kCard};
  card_out_ = {this, nullptr, (op_.me + 1) % op_.n, true, true, sizeof(Card), Channel::kCard};
  post_receive(card_in_, &their_card_);
  post_send(card_out_, &my_card_);
}

void Transfers::send(int member, const void* data, uint64_t bytes, Channel channel) {
  Slot& slot = slots_.at(num_used_++);
  slot = {this, nullptr, member, true, false, bytes, channel};
  post_send(slot, data);
}

void Transfers::receive(int member, void* data, uint64_t bytes, Channel channel) {
  Slot& slot = slots_.at(num_used_++);
  slot = {this, nullptr, member, false, false, bytes, channel};
  post_receive(slot, data);
}

void Transfers::post_send(Slot& slot, const void* data) {
  Peer& peer = group_.peer(slot.member);
  ++counter_of(slot);
  if (!peer.usable()) {
    ended(slot);
    return fail({TENON_E_PEER, peer.trouble()});
  }
  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  params.cb.send = on_sent;
  params.user_data = &slot;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  const ucp_tag_t tag = make_tag(group_.remote_id(slot.member), op_.me, number_, slot.channel, op_.dtype);
  const ucs_status_ptr_t request = ucp_tag_send_nbx(peer.get(), data, slot.bytes, tag, &params);
  if (UCS_PTR_IS_PTR(request)) {
    slot.request = request;
  } else {
    sent(slot, UCS_PTR_STATUS(request));
  }
}

// Only the callback is sure to have the size and the tag of what came: a receive that completes at once
// leaves them empty in UCX 1.13. The callback may run inside the call.
void Transfers::post_receive(Slot& slot, void* data) {
  ++counter_of(slot);
  slot.has_ended = false;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.cb.recv = on_received;
  params.user_data = &slot;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  const ucp_tag_t tag = make_tag(group_.id(), slot.member, number_, slot.channel, 0);
  const ucs_status_ptr_t request =
      ucp_tag_recv_nbx(group_.worker().get(), data, slot.bytes, tag, kMatchAll, &params);
  if (slot.has_ended) return;
  slot.request = UCS_PTR_IS_PTR(request) ? request : nullptr;
  if (slot.request == nullptr) received(slot, UCS_PTR_STATUS(request), {});
}

void Transfers::on_sent(void* request, ucs_status_t status, void* slot) {
  auto& mine = *static_cast<Slot*>(slot);
  ucp_request_free(request);
  mine.owner->sent(mine, status);
}

void Transfers::on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* slot) {
  auto& mine = *static_cast<Slot*>(slot);
  const ucp_tag_recv_info_t copy = *info;
  ucp_request_free(request);
  mine.owner->received(mine, status, copy);
}

void Transfers::ended(Slot& slot) {
  slot.request = nullptr;
  slot.has_ended = true;
  --counter_of(slot);
}

void Transfers::sent(Slot& slot, ucs_status_t status) {
  ended(slot);
  if (status == UCS_OK || cancelling_) return;
  const std::string rank = "rank " + std::to_string(group_.rank_of(slot.member));
  fail({TENON_E_PEER, rank + " cannot be reached: " + ucs_status_string(status)});
}

void Transfers::received(Slot& slot, ucs_status_t status, const ucp_tag_recv_info_t& info) {
  ended(slot);
  if (cancelling_) return;
  if (status == UCS_ERR_MESSAGE_TRUNCATED || (status == UCS_OK && info.length != slot.bytes)) {
    return wrong_size(slot, status, info);
  }
  if (status != UCS_OK) {
    return fail({TENON_E_PEER, "rank " + std::to_string(group_.rank_of(slot.member)) +
                                   " sends no more: " + ucs_status_string(status)});
  }
  if (slot.is_card) return check_card();
  if (slot.channel == Channel::kPair && dtype_of(info.sender_tag) != op_.dtype)
    return wrong_size(slot, status, info);
}

void Transfers::check_card() {
  if (their_card_.signature == my_card_.signature) return;
  fail({TENON_E_ARGUMENT, "members disagree on operation " + std::to_string(number_) + " of group " +
                              group_.text() + ": rank " + std::to_string(group_.rank_of(card_in_.member)) +
                              " started " + get_text(their_card_.text) + ", rank " +
                              std::to_string(group_.rank_of(op_.me)) + " started " +
                              get_text(my_card_.text)});
}

void Transfers::wrong_size(const Slot& slot, ucs_status_t status, const ucp_tag_recv_info_t& info) {
  const std::string size =
      status == UCS_OK ? std::to_string(info.length) : "more than " + std::to_string(slot.bytes);
  const Problem problem{TENON_E_ARGUMENT,
                        "members disagree on operation " + std::to_string(number_) + " of group " +
                            group_.text() + ": rank " + std::to_string(group_.rank_of(slot.member)) +
                            " sent " + size + " bytes of " + comm::dtype_name(dtype_of(info.sender_tag)) +
                            ", rank " + std::to_string(group_.rank_of(op_.me)) + " started " +
                            comm::describe(op_) + " and expected " + std::to_string(slot.bytes)};
  if (slot.channel == Channel::kPair) return fail(problem);
  if (suspicion_) return;
  suspicion_ = problem;
  suspected_at_ = Clock::now();
}

void Transfers::fail(const Problem& problem) {
  if (!problem_) problem_ = problem;
}

template <class Visit>
void Transfers::for_each_in_flight(Visit visit) const {
  for (size_t i = 0; i < num_used_; ++i) {
    if (slots_[i].request != nullptr) visit(slots_[i]);
  }
  for (const Slot* card : {&card_in_, &card_out_}) {
    if (card->request != nullptr) visit(*card);
  }
}

std::optional<Problem> Transfers::problem() {
  if (problem_) return problem_;
  if (suspicion_ && Clock::now() - suspected_at_ > kGrace) return suspicion_;
  std::optional<Problem> lost = missed();
  if (!lost) {
    missed_since_.reset();
    return std::nullopt;
  }
  // What a peer sent before it said goodbye has come, but a receive that has only just been posted learns of
  // that as UCX goes on.
  if (!missed_since_) missed_since_ = Clock::now();
  return Clock::now() - *missed_since_ > kGrace ? lost : std::nullopt;
}

std::optional<Problem> Transfers::missed() const {
  std::optional<Problem> lost;
  if (pending_ + cards_pending_ == 0 || !group_.has_trouble()) return lost;
  for_each_in_flight([&](const Slot& slot) {
    const Peer& peer = group_.peer(slot.member);
    if (!peer.usable() && !lost) lost = Problem{TENON_E_PEER, peer.trouble()};
  });
  return lost;
}

std::string Transfers::waiting_for() const {
  std::set<int> senders, receivers;
  for_each_in_flight(
      [&](const Slot& slot) { (slot.sends ? receivers : senders).insert(group_.rank_of(slot.member)); });
  const std::set<int>& ranks = senders.empty() ? receivers : senders;
  std::string out = senders.empty() ? "what was sent is not taken by" : "nothing has come from";
  int named = 0;
  for (const int rank : ranks) {
    if (++named > 16) return out + " and " + std::to_string(ranks.size() - 16) + " more";
    out += (named == 1 ? " rank " : ", rank ") + std::to_string(rank);
  }
  return out;
}

bool Transfers::progress_until_ended(int64_t timeout_ns) {
  const Deadline deadline = deadline_in(timeout_ns);
  while (pending_ + cards_pending_ > 0) {
    if (group_.worker().progress() > 0) continue;
    if (passed(deadline)) return false;
    poll(nullptr, 0, 1);
  }
  return true;
}

bool Transfers::cancel() {
  if (group_.worker_frozen()) return pending_ + cards_pending_ == 0;
  cancelling_ = true;
  for_each_in_flight([&](const Slot& slot) {
    if (!slot.sends) ucp_request_cancel(group_.worker().get(), slot.request);
  });
  bool all_ended = progress_until_ended(50 * kMs);
  if (!all_ended) {
    std::set<int> holding;
    for_each_in_flight([&](const Slot& slot) { holding.insert(slot.member); });
    for (const int member : holding) {
      Peer& peer = group_.peer(member);
      peer.set_lost("rank " + std::to_string(peer.rank()) + " was cut off while it held up an operation");
      peer.cut(0.5);
    }
    all_ended = progress_until_ended(100 * kMs);
  }
  cancelling_ = !all_ended;
  return all_ended;
}

}  // namespace tenon::comm_ucx
