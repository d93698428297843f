// tenon_sdk/comm/direct.hpp - one member's part of an operation when it can load from and store to the other
// members' memory. All members have arrived before, and all have done their part after. Header-only.
//
//   all_reduce, slices   I reduce slice `me` of everyone's src into everyone's dst: 2/n of all bytes for each
//   all_reduce, whole    I reduce all of everyone's src into my dst: for small arrays, or private dsts
//   all other kinds      I read what is mine from the others' src: only my own memory is written
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "tenon_sdk/comm/op.hpp"
#include "tenon_sdk/comm/reduce.hpp"

namespace tenon::comm {

// A member's memory as this one reaches it. NULL where the operation does not need it.
struct Reach {
  const std::byte* src = nullptr;
  std::byte* dst = nullptr;
  uint64_t src_begin = 0;  // all_to_all: the element of src at which the part for me begins
};

class DirectWork {
 public:
  // `op` must outlive it. `reducer`: that of the op, NULL if it does not reduce.
  DirectWork(const Op& op, Reducer reducer)
      : op_(op),
        reducer_(reducer),
        members_(members_of(op)),
        sources_(members_.size()),
        outs_(members_.size()) {}

  // By member; for send and recv 0 is the sender.
  std::vector<Reach>& members() { return members_; }
  const std::vector<Reach>& members() const { return members_; }

  // `stop()` is asked between pieces of about 128 KiB; true: leave at once. False: it was left.
  template <class Stop>
  bool run(bool slices, const Stop& stop) {
    const auto me = static_cast<size_t>(op_.me);
    switch (op_.kind) {
      case TENON_COMM_ALL_REDUCE: {
        if (!slices) return reduce(0, op_.count, 0, 1, stop);
        const auto [begin, end] = slice(op_.me);
        return reduce(begin, end, 0, op_.n, stop);
      }
      case TENON_COMM_REDUCE_SCATTER:
        return reduce(op_.src_offsets[me], op_.src_offsets[me + 1], op_.src_offsets[me], 1, stop);
      case TENON_COMM_ALL_GATHER:
      case TENON_COMM_ALL_TO_ALL: return gather(stop);
      case TENON_COMM_BROADCAST: return copy(reach(op_.peer).src, op_.dst, op_.count, stop);
      case TENON_COMM_PERMUTE: return copy(reach(op_.from).src, op_.dst, op_.count, stop);
      case TENON_COMM_RECV: return copy(reach(0).src, op_.dst, op_.count, stop);
      default: return true;  // send, barrier: the others do all there is to do
    }
  }

 private:
  static constexpr uint64_t kPiece = 128 << 10;  // bytes

  static size_t members_of(const Op& op) { return pairwise(op.kind) ? 2 : static_cast<size_t>(op.n); }
  const Reach& reach(int member) const { return members_[static_cast<size_t>(member)]; }

  // Slices begin at whole cache lines of the array.
  std::pair<uint64_t, uint64_t> slice(int member) const {
    const auto n = static_cast<uint64_t>(op_.n);
    const uint64_t line = 64 / op_.element;
    const uint64_t size = ((op_.count + n - 1) / n + line - 1) / line * line;
    const uint64_t begin = std::min(op_.count, static_cast<uint64_t>(member) * size);
    return {begin, std::min(op_.count, begin + size)};
  }

  // Elements [begin, end) of every src into elements from begin - shift of the dsts: mine, or those of all n.
  // A piece of memory is touched by one member only, so this is sound in place too.
  template <class Stop>
  bool reduce(uint64_t begin, uint64_t end, uint64_t shift, int num_outs, const Stop& stop) {
    const uint64_t piece = kPiece / op_.element;
    for (uint64_t at = begin; at < end; at += piece) {
      if (stop()) return false;
      for (size_t k = 0; k < members_.size(); ++k) {
        sources_[k] = members_[k].src + at * op_.element;
        if (num_outs > 1) outs_[k] = members_[k].dst + at * op_.element;
      }
      if (num_outs == 1) outs_[0] = op_.dst_at(at - shift);
      reducer_(sources_.data(), op_.n, std::min(piece, end - at), outs_.data(), num_outs);
    }
    return true;
  }

  // Each member begins with its neighbour, so that not all read the same memory at once.
  template <class Stop>
  bool gather(const Stop& stop) {
    for (int i = 1; i <= op_.n; ++i) {
      const int k = (op_.me + i) % op_.n;
      const Reach& from = reach(k);
      std::byte* to = op_.dst_at(op_.dst_offsets[static_cast<size_t>(k)]);
      if (op_.dst_count(k) == 0) continue;
      if (!copy(from.src + from.src_begin * op_.element, to, op_.dst_count(k), stop)) return false;
    }
    return true;
  }

  template <class Stop>
  bool copy(const std::byte* from, std::byte* to, uint64_t count, const Stop& stop) {
    const uint64_t bytes = from == to ? 0 : count * op_.element;
    for (uint64_t at = 0; at < bytes; at += kPiece) {
      if (stop()) return false;
      std::memcpy(to + at, from + at, std::min(kPiece, bytes - at));
    }
    return true;
  }

  const Op& op_;
  const Reducer reducer_;
  std::vector<Reach> members_;
  std::vector<const void*> sources_;  // room for the reducer's arguments
  std::vector<void*> outs_;
};

}  // namespace tenon::comm
