#include "work.h"

#include <algorithm>
#include <cstring>

namespace tenon::comm_local {

using comm::Op;

namespace {

using Ops = std::vector<const Op*>;

const Op& op_of(const Ops& ops, int member) { return *ops[static_cast<size_t>(member)]; }

void copy(const std::byte* from, std::byte* to, uint64_t count, size_t element) {
  if (count > 0 && from != to) std::memcpy(to, from, count * element);
}

// Member i reduces slice i of all sources into slice i of all results. Slices are disjoint and a slice of
// memory is touched by one member only, so this is sound in place too.
void all_reduce(const Ops& ops, const Op& mine, comm::Reducer reducer, WorkSpace& space) {
  const auto n = static_cast<uint64_t>(mine.n);
  const auto me = static_cast<uint64_t>(mine.me);
  const uint64_t line = 64 / mine.element;
  const uint64_t slice = ((mine.count + n - 1) / n + line - 1) / line * line;
  const uint64_t begin = std::min(mine.count, me * slice);
  const uint64_t end = std::min(mine.count, begin + slice);
  if (begin == end) return;
  for (int k = 0; k < mine.n; ++k) {
    space.sources[static_cast<size_t>(k)] = op_of(ops, k).src_at(begin);
    space.outs[static_cast<size_t>(k)] = op_of(ops, k).dst_at(begin);
  }
  reducer(space.sources.data(), mine.n, end - begin, space.outs.data(), mine.n);
}

void reduce_scatter(const Ops& ops, const Op& mine, comm::Reducer reducer, WorkSpace& space) {
  const uint64_t begin = mine.src_offsets[static_cast<size_t>(mine.me)];
  const uint64_t count = mine.src_count(mine.me);
  if (count == 0) return;
  for (int k = 0; k < mine.n; ++k) space.sources[static_cast<size_t>(k)] = op_of(ops, k).src_at(begin);
  space.outs[0] = mine.dst;
  reducer(space.sources.data(), mine.n, count, space.outs.data(), 1);
}

// Each member begins with its neighbour, so that not all read the same memory at once.
void all_gather(const Ops& ops, const Op& mine) {
  for (int i = 0; i < mine.n; ++i) {
    const int k = (mine.me + i) % mine.n;
    copy(op_of(ops, k).src, mine.dst_at(mine.dst_offsets[static_cast<size_t>(k)]), mine.dst_count(k),
         mine.element);
  }
}

void all_to_all(const Ops& ops, const Op& mine) {
  for (int i = 0; i < mine.n; ++i) {
    const int k = (mine.me + i) % mine.n;
    const Op& theirs = op_of(ops, k);
    copy(theirs.src_at(theirs.src_offsets[static_cast<size_t>(mine.me)]),
         mine.dst_at(mine.dst_offsets[static_cast<size_t>(k)]), mine.dst_count(k), mine.element);
  }
}

}  // namespace

void do_part(const Ops& ops, const Op& mine, comm::Reducer reducer, WorkSpace& space) {
  switch (mine.kind) {
    case TENON_COMM_ALL_REDUCE: return all_reduce(ops, mine, reducer, space);
    case TENON_COMM_REDUCE_SCATTER: return reduce_scatter(ops, mine, reducer, space);
    case TENON_COMM_ALL_GATHER: return all_gather(ops, mine);
    case TENON_COMM_BROADCAST: return copy(op_of(ops, mine.peer).src, mine.dst, mine.count, mine.element);
    case TENON_COMM_ALL_TO_ALL: return all_to_all(ops, mine);
    case TENON_COMM_PERMUTE: return copy(op_of(ops, mine.from).src, mine.dst, mine.count, mine.element);
    case TENON_COMM_RECV: return copy(ops[0]->src, mine.dst, mine.count, mine.element);
    default: return;  // send, barrier: the others do all there is to do
  }
}

}  // namespace tenon::comm_local
