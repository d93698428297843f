// What the processes of one host write to each other in shared memory besides the data: who has come to which
// operation, where its memory is, who is done. Nobody waits here for a lock, so a process may be killed or
// stopped at any point.
//
// A sequence of operations (the collectives of a group, the messages from one member to another) goes round
// a ring of slots; operation x uses slot x mod kSlots. In a slot every member has a part that only it writes.
// It writes its part for x once all members are done with x - kSlots:
//
//   posted = x + 1    my part describes x: signature, where my memory is, small data itself
//   working = x + 1   I may be storing to others' memory; 0: no more
//   done = x + 1      I have finished with everyone's memory and parts
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tenon_sdk/comm/futex.hpp"

namespace tenon::comm_ucx {

// One per process: how to wake it, and whether it is still with us.
struct RankPage {
  enum State : uint32_t { kActive = 0, kAborted = 1, kClosed = 2 };
  comm::Bell bell;
  alignas(64) std::atomic<uint32_t> state{kActive};
};

// Where a member's memory is, if not in a segment.
inline constexpr uint32_t kNowhere = UINT32_MAX;      // the operation needs none of it
inline constexpr uint32_t kInline = UINT32_MAX - 1;   // in the part itself
inline constexpr uint32_t kPrivate = UINT32_MAX - 2;  // where no peer reaches it

struct alignas(64) Part {
  std::atomic<uint64_t> posted;
  std::atomic<uint64_t> working;
  std::atomic<uint64_t> done;
  uint64_t finished;   // I was done with all operations below this number when I posted
  uint64_t signature;  // equal for operations that fit together
  uint32_t src_segment, dst_segment;
  uint64_t src_offset, dst_offset;
};
static_assert(sizeof(Part) == 64, "one line tells all");

class Ring {
 public:
  // `memory` is zeroed at first, and shared by the members.
  struct Shape {
    int members = 0;
    uint64_t slots = 0;         // a power of two
    uint64_t inline_bytes = 0;  // a multiple of 64
    uint64_t bytes() const { return slots * slot_bytes(); }
    uint64_t slot_bytes() const { return 64 + static_cast<uint64_t>(members) * part_bytes(); }
    uint64_t part_bytes() const { return sizeof(Part) + kTextBytes + inline_bytes; }
  };
  static constexpr uint64_t kTextBytes = 128;

  Ring(std::byte* memory, const Shape& shape)
      : memory_(memory),
        slots_(shape.slots),
        slot_bytes_(shape.slot_bytes()),
        part_bytes_(shape.part_bytes()),
        inline_bytes_(shape.inline_bytes) {}
  uint64_t slots() const { return slots_; }
  uint64_t inline_bytes() const { return inline_bytes_; }
  // x + 1: some member sleeps until the slot is free for x.
  std::atomic<uint64_t>& wanted(uint64_t number) const {
    return *reinterpret_cast<std::atomic<uint64_t>*>(slot(number));
  }
  Part& part(uint64_t number, int member) const { return *reinterpret_cast<Part*>(part_at(number, member)); }
  // The operation in words, for errors.
  char* text(uint64_t number, int member) const {
    return reinterpret_cast<char*>(part_at(number, member) + sizeof(Part));
  }
  std::byte* payload(uint64_t number, int member) const {
    return part_at(number, member) + sizeof(Part) + kTextBytes;
  }

 private:
  std::byte* slot(uint64_t number) const { return memory_ + (number & (slots_ - 1)) * slot_bytes_; }
  std::byte* part_at(uint64_t number, int member) const {
    return slot(number) + 64 + static_cast<uint64_t>(member) * part_bytes_;
  }
  std::byte* const memory_;
  const uint64_t slots_, slot_bytes_, part_bytes_, inline_bytes_;
};

// A ring, and what this member knows of the others in it. Operations need not end in the order of their
// numbers: that a member is done with one says nothing of those below.
class Sequence {
 public:
  Sequence(const Ring& slots, int members, int place)
      : ring(slots), me_(place), finished_by_(static_cast<size_t>(members)) {}
  const Ring ring;

  // Whether all members are done with what was in the slot before.
  bool slot_is_free_for(uint64_t number) const {
    if (number < ring.slots()) return true;
    const uint64_t before = number - ring.slots();
    for (size_t m = 0; m < finished_by_.size(); ++m) {
      if (finished_by_[m] <= before && !is_done(before, static_cast<int>(m))) return false;
    }
    return true;
  }
  // I am done with all operations below.
  uint64_t finished() const { return finished_; }
  void set_done(uint64_t number) {
    ring.part(number, me_).done.store(number + 1, std::memory_order_seq_cst);
    while (is_done(finished_, me_)) ++finished_;
  }
  // A member was done with all operations below when it posted.
  void hear(int member, uint64_t finished) {
    uint64_t& known = finished_by_[static_cast<size_t>(member)];
    if (known < finished) known = finished;
  }

 private:
  bool is_done(uint64_t number, int member) const {
    return ring.part(number, member).done.load(std::memory_order_acquire) > number;
  }
  const int me_;
  uint64_t finished_ = 0;
  std::vector<uint64_t> finished_by_;  // finished() of each member, as far as known
};

// The first failure of a group, told to all members.
struct alignas(64) FailureNote {
  enum State : uint32_t { kNone = 0, kBeingWritten = 1, kWritten = 2 };
  std::atomic<uint32_t> state;
  int32_t code;
  char text[376];
};

// The shared memory of one group.
class Board {
 public:
  // Where the members' messages to each other have no rings, as in very large groups, they go another way.
  static constexpr int kMostWithPairs = 32;

  Board(std::byte* memory, int members) : memory_(memory), members_(members) {}
  static uint64_t bytes(int members);
  FailureNote& failure() const { return *reinterpret_cast<FailureNote*>(memory_); }
  bool failed() const { return failure().state.load(std::memory_order_seq_cst) != FailureNote::kNone; }
  Ring collectives() const { return {memory_ + sizeof(FailureNote), collective_shape(members_)}; }
  bool has_pairs() const { return members_ <= kMostWithPairs; }
  // From one member to another; its member 0 is the sender, 1 the receiver.
  Ring pair(int from, int to) const;

 private:
  static Ring::Shape collective_shape(int members) { return {members, 16, 4096}; }
  static Ring::Shape pair_shape() { return {2, 4, 1024}; }
  std::byte* memory_;
  int members_;
};

inline uint64_t Board::bytes(int members) {
  const auto n = static_cast<uint64_t>(members);
  const uint64_t pairs = members <= kMostWithPairs ? n * n : 0;
  return sizeof(FailureNote) + collective_shape(members).bytes() + pairs * pair_shape().bytes();
}

inline Ring Board::pair(int from, int to) const {
  const auto index =
      static_cast<uint64_t>(from) * static_cast<uint64_t>(members_) + static_cast<uint64_t>(to);
  return {memory_ + sizeof(FailureNote) + collective_shape(members_).bytes() + index * pair_shape().bytes(),
          pair_shape()};
}

}  // namespace tenon::comm_ucx
