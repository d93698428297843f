// One operation on the board of its group: members post what they start, and once all have, each does its
// part directly in the others' memory.
//
// A member stores to others' memory in one case only: a large all_reduce, where it writes its slice of the
// result for everyone. That is the reason for `working`: who gives up first says so on the board, and then
// waits until nobody stores any more.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "board.h"
#include "memory.h"
#include "problem.h"
#include "tenon_sdk/comm/direct.hpp"

namespace tenon::comm_ucx {

class Group;

class Meeting {
 public:
  Meeting(Group& group, const comm::Op& op, comm::Reducer reducer);
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  enum class State {
    kIdle,
    kQueued,  // waits for a slot
    kPosted,  // waits for the others
    kWorked,  // waits until the others are done with my memory
    kDone,
    kElsewhere  // some member's memory is out of reach: messages must do it. All members find the same.
  };
  void begin(uint64_t number);
  // Moves on as far as possible; never waits.
  State progress();
  State state() const { return state_; }
  // Whether this member's own memory is within everyone's reach.
  bool reachable() const { return source_.segment != kPrivate && result_.segment != kPrivate; }
  // Members disagree, or one that we wait for is gone.
  std::optional<Problem> problem() const;
  // "nothing has come from rank 1"
  std::string waiting_for() const;
  // Ends it, after the failure has been put on the board. False: a member that has stopped in the middle of
  // its work may store to this operation's memory when it goes on.
  bool cancel();

 private:
  struct Source {
    const std::byte* data = nullptr;
    uint64_t bytes = 0;
    uint32_t segment = kNowhere;
    uint64_t offset = 0;
  };
  Source find_source() const;
  Source find_result() const;
  int num_parts() const { return static_cast<int>(work_.members().size()); }
  int rank_of(int part) const;
  Part& part(int of) const { return sequence_.ring.part(number_, of); }
  uint64_t table_bytes() const;
  bool post();
  void put_inline(Part& mine);
  bool all_have_posted();
  void compare(int with);
  bool within_reach() const;
  const std::byte* source_of(int member) const;
  bool resolve();
  void find_parts_for_me();
  bool slices() const;
  bool stores_to_others() const;
  State work();
  bool needs(int member) const;
  void set_done();
  void ring_all() const;
  std::vector<int> missing() const;

  Group& group_;
  const comm::Op& op_;
  comm::DirectWork work_;
  Sequence& sequence_;
  const int me_;  // my part
  const Source source_, result_;
  const uint64_t signature_;
  const std::string text_;
  uint64_t number_ = 0;
  State state_ = State::kIdle;
  int next_ = 0;  // the first part that has not come as far as we wait for
  std::optional<Problem> problem_;
};

}  // namespace tenon::comm_ucx
