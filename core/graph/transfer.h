// What moves data between ranks: every kind, its name in graphs and programs, and what a comm plugin is asked
// for. The one list of them; tenon_sdk/comm/kinds.hpp is written from it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tenon {

// `slice` is the local half of a reshard: an op of graphs like the others, but a kernel runs it.
enum class TransferKind : uint8_t {
  none,
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  permute,
  send,
  recv,
  slice,
};

struct TransferRow {
  TransferKind kind;
  const char* name;
  uint32_t comm;  // TENON_COMM_*
};

// All between ranks, by TENON_COMM_*.
std::span<const TransferRow> transfer_table();
// none: an instruction of that kind moves nothing between ranks.
TransferKind transfer_named(std::string_view name);
// Of a kind that does.
const TransferRow& transfer_row(TransferKind kind);
const char* name_of(TransferKind kind);

inline bool is_one_way(TransferKind kind) { return kind == TransferKind::send || kind == TransferKind::recv; }

}  // namespace tenon
