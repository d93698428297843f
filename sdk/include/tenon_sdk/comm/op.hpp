// tenon_sdk/comm/op.hpp - what every comm plugin does with a tenon_comm_op: check it, name it, compare it
// with a peer's. Header-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tenon/comm.h"
#include "tenon_sdk/comm/kinds.hpp"
#include "tenon_sdk/plugin.hpp"

namespace tenon::comm {

inline size_t dtype_size(uint32_t dtype) {
  switch (dtype) {
    case TENON_F64:
    case TENON_I64: return 8;
    case TENON_F32:
    case TENON_I32: return 4;
    case TENON_BF16:
    case TENON_F16: return 2;
    case TENON_U8: return 1;
    default: return 0;
  }
}

inline const char* dtype_name(uint32_t dtype) {
  static constexpr const char* kNames[] = {"f64", "f32", "bf16", "f16", "i64", "i32", "u8"};
  return dtype < std::size(kNames) ? kNames[dtype] : "unknown dtype";
}

inline const char* kind_name(uint32_t kind) {
  return kind < std::size(kKindNames) ? kKindNames[kind] : "unknown kind";
}

inline const char* reduce_name(uint32_t reduce) {
  static constexpr const char* kNames[] = {"sum", "max", "min"};
  return reduce < std::size(kNames) ? kNames[reduce] : "unknown reduction";
}

inline bool reduces(uint32_t kind) {
  return kind == TENON_COMM_ALL_REDUCE || kind == TENON_COMM_REDUCE_SCATTER;
}
inline bool pairwise(uint32_t kind) { return kind == TENON_COMM_SEND || kind == TENON_COMM_RECV; }

// Some elements of a buffer, one behind the other.
struct ElementRange {
  uint64_t begin, count;
};

// A checked operation, as seen by member `me` of `n`. Offsets are in elements and begin with 0: part i is
// [offsets[i], offsets[i + 1]).
struct Op {
  uint32_t kind = 0;
  uint32_t reduce = 0;
  uint32_t dtype = 0;
  size_t element = 0;  // bytes
  const std::byte* src = nullptr;
  std::byte* dst = nullptr;
  uint64_t count = 0;
  std::vector<uint64_t> src_offsets;  // parts of src: reduce_scatter, all_to_all
  std::vector<uint64_t> dst_offsets;  // parts of dst: all_gather, all_to_all
  int peer = 0;                       // broadcast: root; send, recv: the other; permute: where mine goes
  int from = 0;                       // permute: whose I get
  int me = 0;
  int n = 1;

  uint64_t src_count(int i) const { return part(src_offsets, i); }
  uint64_t dst_count(int i) const { return part(dst_offsets, i); }
  const std::byte* src_at(uint64_t index) const { return src == nullptr ? nullptr : src + index * element; }
  std::byte* dst_at(uint64_t index) const { return dst == nullptr ? nullptr : dst + index * element; }

 private:
  static uint64_t part(const std::vector<uint64_t>& offsets, int i) {
    const auto k = static_cast<size_t>(i);
    return offsets[k + 1] - offsets[k];
  }
};

namespace detail {

inline std::vector<uint64_t> offsets_of(const uint64_t* counts, int n) {
  std::vector<uint64_t> offsets{0};
  for (int i = 0; i < n; ++i) {
    if (__builtin_add_overflow(offsets.back(), counts[i], &offsets.emplace_back())) {
      throw sdk::Failure(TENON_E_ARGUMENT, "the sum of counts overflows");
    }
  }
  return offsets;
}

// "[3, 0, 5]", at most 8 of them.
inline std::string list_of(const std::vector<uint64_t>& offsets) {
  std::string out = "[";
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    if (i == 8) return out + ", ...]";
    out += (i == 0 ? "" : ", ") + std::to_string(offsets[i + 1] - offsets[i]);
  }
  return out + "]";
}

}  // namespace detail

// "all_reduce sum f32[10]"
inline std::string describe(const Op& op) {
  std::string out = kind_name(op.kind);
  if (op.kind == TENON_COMM_BARRIER) return out;
  if (reduces(op.kind)) out += std::string(" ") + reduce_name(op.reduce);
  out += std::string(" ") + dtype_name(op.dtype);
  if (op.kind == TENON_COMM_ALL_TO_ALL) {
    return out + " sending " + detail::list_of(op.src_offsets) + " receiving " +
           detail::list_of(op.dst_offsets);
  }
  if (op.kind == TENON_COMM_REDUCE_SCATTER) return out + detail::list_of(op.src_offsets);
  if (op.kind == TENON_COMM_ALL_GATHER) return out + detail::list_of(op.dst_offsets);
  out += "[" + std::to_string(op.count) + "]";
  if (op.kind == TENON_COMM_BROADCAST) out += " from member " + std::to_string(op.peer);
  if (op.kind == TENON_COMM_PERMUTE) out += " by " + std::to_string((op.peer - op.me + op.n) % op.n);
  if (op.kind == TENON_COMM_SEND) out += " to member " + std::to_string(op.peer);
  if (op.kind == TENON_COMM_RECV) out += " from member " + std::to_string(op.peer);
  return out;
}

namespace detail {

[[noreturn]] inline void refuse(const Op& op, const std::string& why) {
  throw sdk::Failure(TENON_E_ARGUMENT, describe(op) + ": " + why);
}

}  // namespace detail

// Elements that the operation reads from src on this member.
inline uint64_t elements_read(const Op& op) {
  switch (op.kind) {
    case TENON_COMM_REDUCE_SCATTER:
    case TENON_COMM_ALL_TO_ALL: return op.src_offsets.back();
    case TENON_COMM_ALL_GATHER: return op.dst_count(op.me);
    case TENON_COMM_BROADCAST: return op.peer == op.me ? op.count : 0;
    case TENON_COMM_RECV:
    case TENON_COMM_BARRIER: return 0;
    default: return op.count;
  }
}

// Elements that it writes to dst.
inline uint64_t elements_written(const Op& op) {
  switch (op.kind) {
    case TENON_COMM_REDUCE_SCATTER: return op.src_count(op.me);
    case TENON_COMM_ALL_GATHER:
    case TENON_COMM_ALL_TO_ALL: return op.dst_offsets.back();
    case TENON_COMM_SEND:
    case TENON_COMM_BARRIER: return 0;
    default: return op.count;
  }
}

namespace detail {

inline void check_memory(const Op& op) {
  const uint64_t reads = elements_read(op);
  const uint64_t writes = elements_written(op);
  constexpr uint64_t kMost = uint64_t{1} << 56;
  if (reads > kMost || writes > kMost) refuse(op, "more elements than memory has");
  if (reads > 0 && op.src == nullptr) refuse(op, "src is NULL");
  if (writes > 0 && op.dst == nullptr) refuse(op, "dst is NULL");
  if (reads == 0 || writes == 0) return;
  const bool in_place = op.kind == TENON_COMM_ALL_REDUCE || op.kind == TENON_COMM_BROADCAST;
  if (in_place && op.src == op.dst) return;
  if (op.src < op.dst + writes * op.element && op.dst < op.src + reads * op.element) {
    refuse(op, in_place ? "src and dst overlap without being equal" : "src and dst overlap");
  }
}

inline void check_peer(Op& op, int peer) {
  if (op.kind == TENON_COMM_PERMUTE) {
    const int shift = (peer % op.n + op.n) % op.n;
    op.peer = (op.me + shift) % op.n;
    op.from = (op.me - shift + op.n) % op.n;
    return;
  }
  op.peer = peer;
  if (op.kind != TENON_COMM_BROADCAST && !pairwise(op.kind)) return;
  if (peer < 0 || peer >= op.n) {
    refuse(op, "member " + std::to_string(peer) + " is not in a group of " + std::to_string(op.n));
  }
}

inline void take_counts(Op& op, const uint64_t* counts) {
  const bool needs = op.kind == TENON_COMM_REDUCE_SCATTER || op.kind == TENON_COMM_ALL_GATHER ||
                     op.kind == TENON_COMM_ALL_TO_ALL;
  if (!needs) return;
  if (counts == nullptr)
    throw sdk::Failure(TENON_E_ARGUMENT, std::string(kind_name(op.kind)) + ": counts is NULL");
  if (op.kind != TENON_COMM_ALL_GATHER) op.src_offsets = offsets_of(counts, op.n);
  if (op.kind == TENON_COMM_ALL_GATHER) op.dst_offsets = offsets_of(counts, op.n);
  if (op.kind == TENON_COMM_ALL_TO_ALL) op.dst_offsets = offsets_of(counts + op.n, op.n);
}

}  // namespace detail

// Throws TENON_E_ARGUMENT, naming what is wrong. Whether a reduction exists for the dtype is not checked
// here.
inline Op check_op(const tenon_comm_op& given, int me, int n) {
  const auto raw = sdk::read(&given, TENON_END(tenon_comm_op, reserved));
  if (raw.kind > TENON_COMM_BARRIER) {
    throw sdk::Failure(TENON_E_UNSUPPORTED, "operation kind " + std::to_string(raw.kind) + " is unknown");
  }
  Op op;
  op.kind = raw.kind;
  op.reduce = raw.reduce;
  op.dtype = raw.dtype;
  op.me = me;
  op.n = n;
  if (op.kind == TENON_COMM_BARRIER) return op;
  op.element = dtype_size(raw.dtype);
  op.src = static_cast<const std::byte*>(raw.src);
  op.dst = static_cast<std::byte*>(raw.dst);
  op.count = raw.count;
  if (op.element == 0)
    throw sdk::Failure(TENON_E_UNSUPPORTED, "dtype " + std::to_string(raw.dtype) + " is unknown");
  if (reduces(op.kind) && op.reduce > TENON_MIN) {
    throw sdk::Failure(TENON_E_UNSUPPORTED, "reduction " + std::to_string(raw.reduce) + " is unknown");
  }
  detail::take_counts(op, raw.counts);
  detail::check_peer(op, raw.peer);
  detail::check_memory(op);
  return op;
}

// Whether two members' ends of one operation fit together.
inline bool agree(const Op& a, const Op& b) {
  if (pairwise(a.kind) && pairwise(b.kind)) return a.dtype == b.dtype && a.count == b.count;
  if (a.kind != b.kind) return false;
  if (a.kind == TENON_COMM_BARRIER) return true;
  if (a.dtype != b.dtype) return false;
  if (reduces(a.kind) && a.reduce != b.reduce) return false;
  switch (a.kind) {
    case TENON_COMM_REDUCE_SCATTER: return a.src_offsets == b.src_offsets;
    case TENON_COMM_ALL_GATHER: return a.dst_offsets == b.dst_offsets;
    case TENON_COMM_ALL_TO_ALL:
      return a.src_count(b.me) == b.dst_count(a.me) && b.src_count(a.me) == a.dst_count(b.me);
    case TENON_COMM_BROADCAST: return a.count == b.count && a.peer == b.peer;
    case TENON_COMM_PERMUTE:
      return a.count == b.count && (a.peer - a.me + a.n) % a.n == (b.peer - b.me + b.n) % b.n;
    default: return a.count == b.count;
  }
}

// Equal when agree() holds, for members that cannot see each other's Op. The parts of an all_to_all are not
// in it: what a sends to b concerns those two only.
inline uint64_t signature(const Op& op) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto mix = [&hash](uint64_t value) {
    for (int i = 0; i < 8; ++i) hash = (hash ^ (value >> (8 * i) & 0xff)) * 0x100000001b3u;
  };
  mix(pairwise(op.kind) ? uint32_t{TENON_COMM_SEND} : op.kind);
  if (op.kind == TENON_COMM_BARRIER) return hash;
  mix(op.dtype);
  if (reduces(op.kind)) mix(op.reduce);
  if (op.kind == TENON_COMM_BROADCAST) mix(static_cast<uint64_t>(op.peer));
  if (op.kind == TENON_COMM_PERMUTE) mix(static_cast<uint64_t>((op.peer - op.me + op.n) % op.n));
  switch (op.kind) {
    case TENON_COMM_REDUCE_SCATTER:
      for (const uint64_t offset : op.src_offsets) mix(offset);
      break;
    case TENON_COMM_ALL_GATHER:
      for (const uint64_t offset : op.dst_offsets) mix(offset);
      break;
    case TENON_COMM_ALL_TO_ALL: break;
    default: mix(op.count);
  }
  return hash;
}

// "rank 0 started X, rank 2 started Y"
inline std::string disagreement(const Op& a, int rank_a, const Op& b, int rank_b) {
  return "rank " + std::to_string(rank_a) + " started " + describe(a) + ", rank " + std::to_string(rank_b) +
         " started " + describe(b);
}

}  // namespace tenon::comm
