#include "graph/transfer.h"

#include "tenon/comm.h"

namespace tenon {
namespace {

constexpr TransferRow kTransfers[] = {
    {TransferKind::all_reduce, "all_reduce", TENON_COMM_ALL_REDUCE},
    {TransferKind::reduce_scatter, "reduce_scatter", TENON_COMM_REDUCE_SCATTER},
    {TransferKind::all_gather, "all_gather", TENON_COMM_ALL_GATHER},
    {TransferKind::broadcast, "broadcast", TENON_COMM_BROADCAST},
    {TransferKind::all_to_all, "all_to_all", TENON_COMM_ALL_TO_ALL},
    {TransferKind::permute, "permute", TENON_COMM_PERMUTE},
    {TransferKind::send, "send", TENON_COMM_SEND},
    {TransferKind::recv, "recv", TENON_COMM_RECV},
};

// So that a row is found without a search: kinds are in the table's order, behind `none`.
constexpr bool in_order() {
  for (size_t i = 0; i < std::size(kTransfers); ++i) {
    if (static_cast<size_t>(kTransfers[i].kind) != i + 1 || kTransfers[i].comm != i) return false;
  }
  return true;
}
static_assert(in_order());

}  // namespace

std::span<const TransferRow> transfer_table() { return kTransfers; }

TransferKind transfer_named(std::string_view name) {
  for (const TransferRow& row : kTransfers) {
    if (name == row.name) return row.kind;
  }
  return TransferKind::none;
}

const TransferRow& transfer_row(TransferKind kind) { return kTransfers[static_cast<size_t>(kind) - 1]; }

const char* name_of(TransferKind kind) {
  return kind == TransferKind::slice  ? "slice"
         : kind == TransferKind::none ? "none"
                                      : transfer_row(kind).name;
}

}  // namespace tenon
