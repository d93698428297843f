#include "algorithms.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tenon_sdk/plugin.hpp"
#include "transfers.h"

namespace tenon::comm_ucx {

using comm::Op;

namespace {

// Up to this many bytes received per member, one stage beats two.
constexpr uint64_t kDirectBytes = 128 << 10;
// Up to this size few stages count, beyond it few bytes and no waiting for a whole stage.
constexpr uint64_t kHalvingBytes = 1 << 20;
// From here on a message is long enough to go round a ring, where every link carries one at a time.
constexpr uint64_t kRingBytes = 64 << 10;
// Staging per operation: it should stay in the caches, and bounds the memory that a large reduction needs.
constexpr uint64_t kStagingBytes = 4 << 20;
constexpr uint64_t kLine = 64;

void copy(const std::byte* from, std::byte* to, uint64_t bytes) {
  if (bytes > 0 && from != to) std::memcpy(to, from, bytes);
}

}  // namespace

Algorithm::Algorithm(const Op& op, comm::Reducer reducer)
    : op_(op), reducer_(reducer), sources_(static_cast<size_t>(op.n)) {
  const auto n = static_cast<unsigned>(op.n);
  if (comm::reduces(op.kind)) plan_reduction();
  if (op.kind == TENON_COMM_BROADCAST) num_stages_ = 2;
  if (op.kind == TENON_COMM_ALL_GATHER && op.n > 2) {
    ring_ = op.dst_offsets.back() * op.element / n >= kRingBytes;
    if (ring_) num_stages_ = op.n - 1;
  }
  if (op.kind == TENON_COMM_BARRIER) num_stages_ = std::bit_width(n - 1);
}

void Algorithm::plan_reduction() {
  const auto n = static_cast<uint64_t>(op_.n);
  const uint64_t line = kLine / op_.element;
  if (op_.kind == TENON_COMM_REDUCE_SCATTER) {
    parts_ = op_.src_offsets;
  } else {
    const uint64_t bytes = op_.count * op_.element;
    direct_ = bytes * (n - 1) <= kDirectBytes;
    // bf16 is rounded once, at the root, so partial sums in bf16 cannot travel.
    const bool composes = op_.dtype != TENON_BF16;
    if (!direct_ && composes && n >= 4 && std::has_single_bit(n) && bytes <= kHalvingBytes) {
      halvings_ = std::countr_zero(n);
      num_stages_ = 2 * halvings_;
      staging_bytes_ = (bytes + kLine - 1) / kLine * kLine;
      return;
    }
    const uint64_t slice = direct_ ? op_.count : ((op_.count + n - 1) / n + line - 1) / line * line;
    for (uint64_t i = 0; i <= n; ++i) parts_.push_back(std::min(op_.count, i * slice));
  }
  uint64_t largest = 0;
  for (size_t i = 0; i + 1 < parts_.size(); ++i) largest = std::max(largest, parts_[i + 1] - parts_[i]);
  segment_count_ = direct_ ? largest : std::max(kStagingBytes / n / kLine, uint64_t{1}) * line;
  segment_count_ = std::min(segment_count_, (largest + line - 1) / line * line);
  if (op_.n == 1 || largest == 0) {
    direct_ = op_.kind == TENON_COMM_ALL_REDUCE;
    segment_count_ = largest;
    return;
  }
  const uint64_t num_segments = direct_ ? 1 : (largest + segment_count_ - 1) / segment_count_;
  if (op_.kind == TENON_COMM_ALL_REDUCE && !direct_)
    gather_stages_ = n > 2 && segment_count_ * op_.element >= kRingBytes ? op_.n - 1 : 1;
  num_stages_ = static_cast<int>(num_segments) * (1 + gather_stages_);
  staging_bytes_ = (n - 1) * ((segment_count_ * op_.element + kLine - 1) / kLine * kLine);
}

void Algorithm::reserve() {
  if (staging_bytes_ == 0 || staging_ != nullptr) return;
  staging_.reset(static_cast<std::byte*>(std::aligned_alloc(kLine, staging_bytes_)));
  if (staging_ == nullptr) {
    throw sdk::Failure(TENON_E_MEMORY, comm::describe(op_) + ": no memory for " +
                                           std::to_string(staging_bytes_) + " bytes of staging");
  }
  std::memset(staging_.get(), 0, staging_bytes_);  // page faults now, not in the step
}

comm::ElementRange Algorithm::segment(int member, uint64_t number) const {
  const uint64_t end = parts_[static_cast<size_t>(member) + 1];
  const uint64_t begin = std::min(end, parts_[static_cast<size_t>(member)] + number * segment_count_);
  return {begin, std::min(segment_count_, end - begin)};
}

std::byte* Algorithm::staging(int member) const {
  const auto slot = static_cast<uint64_t>(member < op_.me ? member : member - 1);
  return staging_.get() + slot * ((segment_count_ * op_.element + kLine - 1) / kLine * kLine);
}

void Algorithm::post(int stage, Transfers& transfers) {
  if (halvings_ > 0) return post_halving(stage, transfers);
  if (stage_in_segment(stage) > 0) {
    if (gather_stages_ == 1) return post_gather(segment_of(stage), transfers);
    return post_ring(segment_of(stage), stage_in_segment(stage) - 1, transfers);
  }
  switch (op_.kind) {
    case TENON_COMM_ALL_REDUCE:
      return direct_ ? post_direct(transfers) : post_scatter(segment_of(stage), transfers);
    case TENON_COMM_REDUCE_SCATTER: return post_scatter(segment_of(stage), transfers);
    case TENON_COMM_ALL_GATHER:
      return ring_ ? post_all_gather_ring(stage, transfers) : post_all_gather(transfers);
    case TENON_COMM_ALL_TO_ALL: return post_all_to_all(transfers);
    case TENON_COMM_BROADCAST: return post_broadcast(stage, transfers);
    case TENON_COMM_BARRIER: return post_barrier(stage, transfers);
    case TENON_COMM_PERMUTE:
      if (op_.peer == op_.me) return;
      transfers.receive(op_.from, op_.dst, op_.count * op_.element, Channel::kScatter);
      return transfers.send(op_.peer, op_.src, op_.count * op_.element, Channel::kScatter);
    case TENON_COMM_SEND: return transfers.send(op_.peer, op_.src, op_.count * op_.element, Channel::kPair);
    default: return transfers.receive(op_.peer, op_.dst, op_.count * op_.element, Channel::kPair);
  }
}

void Algorithm::finish(int stage) {
  if (halvings_ > 0) return add_half(stage);
  if (stage_in_segment(stage) > 0) return;
  if (comm::reduces(op_.kind)) return reduce(segment_of(stage));
  if (stage == 0) copy_own();
}

// Empty parts need no message: both ends know the counts, which the cards have compared.
void Algorithm::post_scatter(uint64_t number, Transfers& transfers) {
  const comm::ElementRange mine = segment(op_.me, number);
  for (int i = 1; i < op_.n && mine.count > 0; ++i) {
    const int member = (op_.me + i) % op_.n;
    transfers.receive(member, staging(member), mine.count * op_.element, Channel::kScatter);
  }
  for (int i = 1; i < op_.n; ++i) {
    const int member = (op_.me + i) % op_.n;
    const comm::ElementRange theirs = segment(member, number);
    if (theirs.count == 0) continue;
    transfers.send(member, op_.src_at(theirs.begin), theirs.count * op_.element, Channel::kScatter);
  }
}

void Algorithm::post_gather(uint64_t number, Transfers& transfers) {
  const comm::ElementRange mine = segment(op_.me, number);
  for (int i = 1; i < op_.n; ++i) {
    const int member = (op_.me + i) % op_.n;
    const comm::ElementRange theirs = segment(member, number);
    if (theirs.count == 0) continue;
    transfers.receive(member, op_.dst_at(theirs.begin), theirs.count * op_.element, Channel::kGather);
  }
  for (int i = 1; i < op_.n && mine.count > 0; ++i) {
    transfers.send((op_.me + i) % op_.n, op_.dst_at(mine.begin), mine.count * op_.element, Channel::kGather);
  }
}

// In each step everyone passes on the slice that it has had longest: its own first.
void Algorithm::post_ring(uint64_t number, int step, Transfers& transfers) {
  const comm::ElementRange out = segment((op_.me - step + op_.n) % op_.n, number);
  const comm::ElementRange in = segment((op_.me - step - 1 + 2 * op_.n) % op_.n, number);
  if (in.count > 0) {
    transfers.receive((op_.me + op_.n - 1) % op_.n, op_.dst_at(in.begin), in.count * op_.element,
                      Channel::kGather);
  }
  if (out.count > 0)
    transfers.send((op_.me + 1) % op_.n, op_.dst_at(out.begin), out.count * op_.element, Channel::kGather);
}

// What a member still holds after so many halvings.
comm::ElementRange Algorithm::held(int member, int stages) const {
  const uint64_t line = kLine / op_.element;
  comm::ElementRange range{0, op_.count};
  for (int k = 0; k < stages; ++k) {
    const uint64_t lower = std::min(range.count, (range.count / 2 + line - 1) / line * line);
    const bool upper_half = (member >> k & 1) != 0;
    range = upper_half ? comm::ElementRange{range.begin + lower, range.count - lower}
                       : comm::ElementRange{range.begin, lower};
  }
  return range;
}

void Algorithm::post_halving(int stage, Transfers& transfers) {
  const bool halves = stage < halvings_;
  const int k = halves ? stage : 2 * halvings_ - 1 - stage;
  const int partner = op_.me ^ (1 << k);
  const comm::ElementRange mine = held(op_.me, k + 1), theirs = held(partner, k + 1);
  const Channel channel = halves ? Channel::kScatter : Channel::kGather;
  const std::byte* have = stage == 0 ? op_.src : op_.dst;
  const comm::ElementRange in = halves ? mine : theirs, out = halves ? theirs : mine;
  std::byte* to = halves ? staging_.get() : op_.dst_at(in.begin);
  if (in.count > 0) transfers.receive(partner, to, in.count * op_.element, channel);
  if (out.count > 0)
    transfers.send(partner, have + out.begin * op_.element, out.count * op_.element, channel);
}

// The lower block stands on the left of the tree's node.
void Algorithm::add_half(int stage) {
  if (stage >= halvings_) return;
  const comm::ElementRange mine = held(op_.me, stage + 1);
  if (mine.count == 0) return;
  const std::byte* have = (stage == 0 ? op_.src : op_.dst) + mine.begin * op_.element;
  const void* pair[] = {have, staging_.get()};
  if ((op_.me >> stage & 1) != 0) std::swap(pair[0], pair[1]);
  void* out = op_.dst_at(mine.begin);
  reducer_(pair, 2, mine.count, &out, 1);
}

void Algorithm::post_direct(Transfers& transfers) {
  const uint64_t bytes = op_.count * op_.element;
  for (int i = 1; i < op_.n && bytes > 0; ++i) {
    const int member = (op_.me + i) % op_.n;
    transfers.receive(member, staging(member), bytes, Channel::kScatter);
  }
  for (int i = 1; i < op_.n && bytes > 0; ++i) {
    transfers.send((op_.me + i) % op_.n, op_.src, bytes, Channel::kScatter);
  }
}

void Algorithm::post_all_gather(Transfers& transfers) {
  for (int i = 1; i < op_.n; ++i) {
    const int member = (op_.me + i) % op_.n;
    const uint64_t count = op_.dst_count(member);
    if (count == 0) continue;
    transfers.receive(member, op_.dst_at(op_.dst_offsets[static_cast<size_t>(member)]), count * op_.element,
                      Channel::kScatter);
  }
  const uint64_t bytes = op_.dst_count(op_.me) * op_.element;
  for (int i = 1; i < op_.n && bytes > 0; ++i) {
    transfers.send((op_.me + i) % op_.n, op_.src, bytes, Channel::kScatter);
  }
}

void Algorithm::post_all_gather_ring(int step, Transfers& transfers) {
  const int out = (op_.me - step + op_.n) % op_.n, in = (op_.me - step - 1 + 2 * op_.n) % op_.n;
  const auto place = [&](int m) { return op_.dst_at(op_.dst_offsets[static_cast<size_t>(m)]); };
  if (op_.dst_count(in) > 0) {
    transfers.receive((op_.me + op_.n - 1) % op_.n, place(in), op_.dst_count(in) * op_.element,
                      Channel::kScatter);
  }
  if (op_.dst_count(out) > 0) {
    transfers.send((op_.me + 1) % op_.n, step == 0 ? op_.src : place(out), op_.dst_count(out) * op_.element,
                   Channel::kScatter);
  }
}

// Empty parts travel too: the other end may expect something else, and learns it from the size.
void Algorithm::post_all_to_all(Transfers& transfers) {
  for (int i = 1; i < op_.n; ++i) {
    const int member = (op_.me + i) % op_.n;
    transfers.receive(member, op_.dst_at(op_.dst_offsets[static_cast<size_t>(member)]),
                      op_.dst_count(member) * op_.element, Channel::kScatter);
  }
  for (int i = 1; i < op_.n; ++i) {
    const int member = (op_.me + i) % op_.n;
    transfers.send(member, op_.src_at(op_.src_offsets[static_cast<size_t>(member)]),
                   op_.src_count(member) * op_.element, Channel::kScatter);
  }
}

// With ranks counted from the root, v's parent is v without its lowest bit; its children add a lower bit.
void Algorithm::post_broadcast(int stage, Transfers& transfers) {
  const uint64_t bytes = op_.count * op_.element;
  const auto n = static_cast<unsigned>(op_.n);
  const auto v = static_cast<unsigned>((op_.me - op_.peer + op_.n) % op_.n);
  const auto member = [&](unsigned of) {
    return static_cast<int>((of + static_cast<unsigned>(op_.peer)) % n);
  };
  if (bytes == 0) return;
  if (stage == 0) {
    if (v != 0) transfers.receive(member(v & (v - 1)), op_.dst, bytes, Channel::kScatter);
    return;
  }
  const unsigned below = v == 0 ? std::bit_ceil(n) : v & (~v + 1);
  const void* data = v == 0 ? static_cast<const void*>(op_.src) : op_.dst;
  for (unsigned bit = below / 2; bit > 0; bit /= 2) {
    if (v + bit < n) transfers.send(member(v + bit), data, bytes, Channel::kScatter);
  }
}

// After stage k everyone knows that the 2^(k+1) members before it have come. Distances differ, so senders
// tell the stages apart.
void Algorithm::post_barrier(int stage, Transfers& transfers) {
  const int distance = 1 << stage;
  transfers.receive((op_.me - distance + op_.n) % op_.n, nullptr, 0, Channel::kScatter);
  transfers.send((op_.me + distance) % op_.n, nullptr, 0, Channel::kScatter);
}

void Algorithm::reduce(uint64_t number) {
  const comm::ElementRange mine = direct_ ? comm::ElementRange{0, op_.count} : segment(op_.me, number);
  if (mine.count == 0) return;
  for (int k = 0; k < op_.n; ++k) {
    const bool own = k == op_.me;
    sources_[static_cast<size_t>(k)] = own ? static_cast<const void*>(op_.src_at(mine.begin)) : staging(k);
  }
  const uint64_t before = op_.kind == TENON_COMM_REDUCE_SCATTER ? parts_[static_cast<size_t>(op_.me)] : 0;
  void* out = op_.dst_at(mine.begin - before);
  reducer_(sources_.data(), op_.n, mine.count, &out, 1);
}

// What stays on this member.
void Algorithm::copy_own() {
  const auto me = static_cast<size_t>(op_.me);
  switch (op_.kind) {
    case TENON_COMM_ALL_GATHER:
      return copy(op_.src, op_.dst_at(op_.dst_offsets[me]), op_.dst_count(op_.me) * op_.element);
    case TENON_COMM_ALL_TO_ALL:
      return copy(op_.src_at(op_.src_offsets[me]), op_.dst_at(op_.dst_offsets[me]),
                  op_.dst_count(op_.me) * op_.element);
    case TENON_COMM_BROADCAST:
      if (op_.peer == op_.me) copy(op_.src, op_.dst, op_.count * op_.element);
      return;
    case TENON_COMM_PERMUTE:
      if (op_.peer == op_.me) copy(op_.src, op_.dst, op_.count * op_.element);
      return;
    default: return;
  }
}

}  // namespace tenon::comm_ucx
