#include "meeting.h"

#include <poll.h>

#include <algorithm>
#include <cstring>

#include "domain.h"
#include "group.h"
#include "tenon_sdk/comm/members.hpp"
#include "wire.h"

namespace tenon::comm_ucx {

using comm::ElementRange;
using comm::kMs;
using comm::Op;

namespace {

bool in_segment(uint32_t segment) { return segment < kPrivate; }

int part_of(const Op& op) {
  if (op.kind == TENON_COMM_SEND) return 0;
  return op.kind == TENON_COMM_RECV ? 1 : op.me;
}

}  // namespace

Meeting::Meeting(Group& group, const Op& op, comm::Reducer reducer)
    : group_(group),
      op_(op),
      work_(op, reducer),
      sequence_(group.sequence_of(op)),
      me_(part_of(op)),
      source_(find_source()),
      result_(find_result()),
      signature_(comm::signature(op)),
      text_(comm::describe(op)) {}

// Of an all_to_all, at the head of what its part holds: the elements of src that go to each member.
uint64_t Meeting::table_bytes() const {
  return op_.kind == TENON_COMM_ALL_TO_ALL ? static_cast<uint64_t>(op_.n) * sizeof(ElementRange) : 0;
}

// What the others need of mine.
Meeting::Source Meeting::find_source() const {
  Source out;
  out.data = op_.src;
  out.bytes = comm::elements_read(op_) * op_.element;
  const uint64_t room = sequence_.ring.inline_bytes();
  const std::optional<Spot> spot = group_.domain().segments().find(op_.src, out.bytes);
  if (table_bytes() > room) {
    out.segment = kPrivate;
  } else if (out.bytes == 0) {
    out.segment = kNowhere;
  } else if (table_bytes() + out.bytes <= room) {
    out.segment = kInline;
  } else if (spot) {
    out.segment = spot->segment;
    out.offset = spot->offset;
  } else {
    out.segment = kPrivate;
  }
  return out;
}

// Where the others store for me.
Meeting::Source Meeting::find_result() const {
  Source out;
  if (op_.kind != TENON_COMM_ALL_REDUCE || source_.segment == kInline || source_.bytes == 0) return out;
  const std::optional<Spot> spot = group_.domain().segments().find(op_.dst, source_.bytes);
  out.segment = spot ? spot->segment : kPrivate;
  out.offset = spot ? spot->offset : 0;
  return out;
}

bool Meeting::slices() const { return in_segment(result_.segment) && in_segment(source_.segment); }
bool Meeting::stores_to_others() const { return slices() && op_.n > 1; }

int Meeting::rank_of(int part) const {
  if (!comm::pairwise(op_.kind)) return group_.rank_of(part);
  return group_.rank_of(part == me_ ? op_.me : op_.peer);
}

void Meeting::begin(uint64_t number) {
  number_ = number;
  next_ = 0;
  problem_.reset();
  state_ = State::kQueued;
}

Meeting::State Meeting::progress() {
  if (problem_) return state_;
  if (state_ == State::kQueued && (op_.kind == TENON_COMM_RECV || post())) state_ = State::kPosted;
  if (state_ == State::kPosted && all_have_posted() && !problem_) state_ = work();
  if (state_ == State::kWorked) {
    while (next_ < num_parts() &&
           (!needs(next_) || part(next_).done.load(std::memory_order_acquire) > number_))
      ++next_;
    if (next_ == num_parts()) state_ = State::kDone;
  }
  return state_;
}

// False: the slot is still in use.
bool Meeting::post() {
  if (!sequence_.slot_is_free_for(number_)) {
    sequence_.ring.wanted(number_).store(number_ + 1, std::memory_order_seq_cst);
    if (!sequence_.slot_is_free_for(number_)) return false;
  }
  Part& mine = part(me_);
  mine.finished = sequence_.finished();
  mine.signature = signature_;
  mine.src_segment = source_.segment;
  mine.src_offset = source_.offset;
  mine.dst_segment = result_.segment;
  mine.dst_offset = result_.offset;
  put_text(*reinterpret_cast<char(*)[Ring::kTextBytes]>(sequence_.ring.text(number_, me_)), text_);
  put_inline(mine);
  mine.posted.store(number_ + 1, std::memory_order_seq_cst);
  if (comm::pairwise(op_.kind) || all_have_posted()) ring_all();  // the last one wakes those who sleep
  return true;
}

void Meeting::put_inline(Part& mine) {
  std::byte* to = sequence_.ring.payload(number_, me_);
  if (op_.kind == TENON_COMM_ALL_TO_ALL && mine.src_segment != kPrivate) {
    for (int m = 0; m < op_.n; ++m) {
      const ElementRange range{op_.src_offsets[static_cast<size_t>(m)], op_.src_count(m)};
      std::memcpy(to + static_cast<size_t>(m) * sizeof range, &range, sizeof range);
    }
  }
  if (mine.src_segment == kInline) std::memcpy(to + table_bytes(), source_.data, source_.bytes);
}

// A sender needs nobody, a receiver the sender; all others everyone.
bool Meeting::all_have_posted() {
  const int wanted = op_.kind == TENON_COMM_SEND ? 0 : op_.kind == TENON_COMM_RECV ? 1 : op_.n;
  for (; next_ < wanted; ++next_) {
    if (next_ == me_) continue;
    const Part& theirs = part(next_);
    if (theirs.posted.load(std::memory_order_seq_cst) != number_ + 1) return false;
    sequence_.hear(next_, theirs.finished);
    if (theirs.signature != signature_) compare(next_);
  }
  return true;
}

void Meeting::compare(int with) {
  if (problem_) return;
  const char* theirs = sequence_.ring.text(number_, with);
  problem_ = {TENON_E_ARGUMENT, "members disagree on operation " + std::to_string(number_) + " of group " +
                                    group_.text() + ": rank " + std::to_string(rank_of(with)) + " started " +
                                    std::string(theirs, strnlen(theirs, Ring::kTextBytes)) + ", rank " +
                                    std::to_string(group_.rank_of(op_.me)) + " started " + text_};
}

bool Meeting::within_reach() const {
  const int posted = comm::pairwise(op_.kind) ? 1 : op_.n;
  for (int m = 0; m < posted; ++m) {
    if (part(m).src_segment == kPrivate || part(m).dst_segment == kPrivate) return false;
  }
  return true;
}

const std::byte* Meeting::source_of(int member) const {
  const Part& theirs = part(member);
  if (theirs.src_segment == kInline) return sequence_.ring.payload(number_, member) + table_bytes();
  return group_.domain().segments().reach(rank_of(member), {theirs.src_segment, theirs.src_offset});
}

// Where everyone's memory is in this process. False: some of it is not mapped any more.
bool Meeting::resolve() {
  std::vector<comm::Reach>& members = work_.members();
  const int posted = comm::pairwise(op_.kind) ? 1 : op_.n;
  for (int m = 0; m < posted; ++m) {
    comm::Reach& reach = members[static_cast<size_t>(m)];
    reach = {op_.src, op_.dst, 0};
    if (m == me_) continue;
    const Part& theirs = part(m);
    reach = {theirs.src_segment == kNowhere ? nullptr : source_of(m), nullptr, 0};
    if (slices())
      reach.dst = group_.domain().segments().reach(rank_of(m), {theirs.dst_segment, theirs.dst_offset});
    const bool lost =
        (theirs.src_segment != kNowhere && reach.src == nullptr) || (slices() && reach.dst == nullptr);
    if (!lost) continue;
    problem_ = {TENON_E_STATE, text_ + ": the memory of rank " + std::to_string(rank_of(m)) +
                                   " was allocated together with memory that this rank has freed"};
    return false;
  }
  if (op_.kind == TENON_COMM_ALL_TO_ALL) find_parts_for_me();
  return !problem_;
}

void Meeting::find_parts_for_me() {
  for (int m = 0; m < op_.n; ++m) {
    ElementRange range{};
    const std::byte* table = sequence_.ring.payload(number_, m);
    std::memcpy(&range, table + static_cast<size_t>(op_.me) * sizeof range, sizeof range);
    work_.members()[static_cast<size_t>(m)].src_begin = range.begin;
    if (range.count != op_.dst_count(m)) compare(m);
  }
}

Meeting::State Meeting::work() {
  if (!within_reach()) {
    set_done();
    return State::kElsewhere;
  }
  if (!resolve()) return State::kPosted;
  const Board& board = group_.board();
  Part& mine = part(me_);
  if (stores_to_others()) mine.working.store(number_ + 1, std::memory_order_seq_cst);
  const bool finished = !board.failed() && work_.run(slices(), [&] { return board.failed(); });
  if (stores_to_others()) mine.working.store(0, std::memory_order_release);
  // Whoever has given up may have changed its memory while it was read.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!finished || board.failed()) {
    problem_ = group_.failure_on_board();
    return State::kPosted;
  }
  set_done();
  next_ = 0;
  return State::kWorked;
}

// Whether this operation is over only when `member` is done: it reads my source, or stores to my result.
bool Meeting::needs(int member) const {
  if (member == me_) return false;
  if (slices()) return true;
  if (!in_segment(source_.segment)) return false;
  return op_.kind != TENON_COMM_PERMUTE || member == op_.peer;
}

void Meeting::set_done() {
  sequence_.set_done(number_);
  const Ring& ring = sequence_.ring;
  bool awaited = ring.wanted(number_).load(std::memory_order_seq_cst) == number_ + ring.slots() + 1;
  const int posted = comm::pairwise(op_.kind) ? 1 : op_.n;
  for (int m = 0; m < posted && !awaited; ++m) awaited = m != me_ && in_segment(part(m).src_segment);
  if (!awaited) return;
  for (int m = 0; m < num_parts(); ++m) {
    const bool sends = comm::pairwise(op_.kind) && m == 0;  // it waits, and nobody for it
    if (m != me_ && !sends && part(m).done.load(std::memory_order_seq_cst) <= number_) return;
  }
  ring_all();
}

void Meeting::ring_all() const {
  for (int m = 0; m < num_parts(); ++m) {
    if (m != me_) group_.domain().ring(rank_of(m));
  }
}

std::vector<int> Meeting::missing() const {
  std::vector<int> ranks;
  const int wanted = op_.kind == TENON_COMM_SEND ? 0 : op_.kind == TENON_COMM_RECV ? 1 : op_.n;
  const bool started = state_ == State::kPosted;
  for (int m = 0; m < num_parts(); ++m) {
    if (m == me_) continue;
    if (started && m < wanted && part(m).posted.load() != number_ + 1) ranks.push_back(rank_of(m));
    if (state_ == State::kWorked && needs(m) && part(m).done.load() <= number_) ranks.push_back(rank_of(m));
    if (state_ == State::kQueued && op_.kind != TENON_COMM_RECV && number_ >= sequence_.ring.slots() &&
        sequence_.ring.part(number_ - sequence_.ring.slots(), m).done.load() <=
            number_ - sequence_.ring.slots())
      ranks.push_back(rank_of(m));
  }
  return ranks;
}

std::optional<Problem> Meeting::problem() const {
  if (problem_) return problem_;
  if (!group_.has_trouble()) return std::nullopt;
  for (const int rank : missing()) {
    const std::string reason = group_.domain().reason_to_be_gone(rank);
    if (!reason.empty()) return Problem{TENON_E_PEER, reason};
  }
  return std::nullopt;
}

std::string Meeting::waiting_for() const {
  const std::vector<int> ranks = missing();
  const std::string who = (ranks.size() == 1 ? "rank " : "ranks ") + comm::rank_list(ranks);
  if (state_ == State::kWorked) return "not done yet: " + who;
  if (state_ == State::kQueued) return "earlier operations are not done: " + who;
  return "nothing has come from " + who;
}

bool Meeting::cancel() {
  const bool others_may_store = stores_to_others() && (state_ == State::kPosted || state_ == State::kWorked);
  const comm::Deadline deadline = comm::deadline_in(200 * kMs);
  for (int m = 0; others_may_store && m < num_parts(); ++m) {
    if (m == me_) continue;
    while (part(m).working.load(std::memory_order_seq_cst) == number_ + 1 &&
           !group_.domain().process_has_ended(rank_of(m))) {
      if (comm::passed(deadline)) {
        group_.domain().segments().make_private();
        return false;
      }
      poll(nullptr, 0, 1);
    }
  }
  if (state_ != State::kElsewhere) state_ = State::kIdle;
  return true;
}

}  // namespace tenon::comm_ucx
