// The messages of one operation in flight: posted without allocating, counted until they have all ended.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exchange.h"
#include "problem.h"
#include "tenon_sdk/comm/op.hpp"
#include "wire.h"

namespace tenon::comm_ucx {

class Group;

class Transfers {
 public:
  // Room for `capacity` messages at a time besides the cards.
  Transfers(Group& group, const comm::Op& op, size_t capacity);
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // A new operation: its number, and the cards that collectives exchange.
  void begin(uint64_t number);
  // The next stage; all messages of the last one have ended.
  void next_stage() { num_used_ = 0; }
  void send(int member, const void* data, uint64_t bytes, Channel channel);
  void receive(int member, void* data, uint64_t bytes, Channel channel);

  bool stage_done() const { return pending_ == 0; }
  bool cards_done() const { return cards_pending_ == 0; }
  // What went wrong, if anything: told by a message, or by the loss of a peer that we wait for.
  std::optional<Problem> problem();
  uint64_t number() const { return number_; }
  // World ranks whose messages have not come; or, if there are none, who have not taken ours.
  std::string waiting_for() const;
  // Ends everything. Drops the connection to a peer that holds up a message. False: UCX has begun to fill
  // some of the memory and does not let go, as of a message whose second half never comes. Then the worker
  // must not run any more, and this object must live until it has gone.
  bool cancel();

 private:
  struct Slot {
    Transfers* owner = nullptr;
    void* request = nullptr;  // in flight
    int member = 0;
    bool sends = false;
    bool is_card = false;
    uint64_t bytes = 0;
    Channel channel = Channel::kCard;
    bool has_ended = false;
  };
  static void on_sent(void* request, ucs_status_t status, void* slot);
  static void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* slot);
  void post_send(Slot& slot, const void* data);
  void post_receive(Slot& slot, void* data);
  void ended(Slot& slot);
  void sent(Slot& slot, ucs_status_t status);
  void received(Slot& slot, ucs_status_t status, const ucp_tag_recv_info_t& info);
  void check_card();
  void wrong_size(const Slot& slot, ucs_status_t status, const ucp_tag_recv_info_t& info);
  void fail(const Problem& problem);
  uint32_t& counter_of(const Slot& slot) { return slot.is_card ? cards_pending_ : pending_; }
  bool progress_until_ended(int64_t timeout_ns);
  // A peer that is gone while we wait for it.
  std::optional<Problem> missed() const;
  template <class Visit>
  void for_each_in_flight(Visit visit) const;

  Group& group_;
  const comm::Op& op_;
  uint64_t number_ = 0;
  std::vector<Slot> slots_;
  size_t num_used_ = 0;
  uint32_t pending_ = 0;
  Card my_card_, their_card_;
  Slot card_out_, card_in_;
  uint32_t cards_pending_ = 0;
  bool cancelling_ = false;
  std::optional<Problem> problem_;
  // A message of the wrong size in a collective: the card that says why may still be on its way.
  std::optional<Problem> suspicion_;
  Clock::time_point suspected_at_;
  std::optional<Clock::time_point> missed_since_;
};

}  // namespace tenon::comm_ucx
