#include "plan/show/transfer_cost.h"

#include <fmt/format.h>

#include "plan/show/spans.h"

namespace tenon {
namespace {

// To how many a member of a binomial tree of n passes on what it has; members count from the root.
int children(int64_t member, int64_t n) {
  int out = 0;
  for (int64_t to = 1; (member & to) == 0 && member + to < n; to *= 2) ++out;
  return out;
}

TransferCost broadcast(const Program& program, const Instr& instr, double bytes) {
  const auto n = program.mesh.size(instr.axes);
  // Over the pipeline's axis all ranks of a program are at one place; over another one of them is the root.
  const bool placed = instr.axes == std::vector{program.pipeline_axis};
  const int64_t member = placed ? (program.class_index - instr.peer + n) % n : 0;
  const int to = children(member, n), depth = children(0, n);
  std::string told = fmt::format("all of it to {} of {} others{}", to, n - 1,
                                 to + 1 < n && member == 0 ? ", which pass it on" : "");
  if (to == 0) told = "nothing: it receives";
  return {to * bytes, std::move(told), static_cast<double>(depth), depth * bytes};
}

}  // namespace

TransferCost cost_of_transfer(const Program& program, const Instr& instr) {
  const auto n = static_cast<double>(program.mesh.size(instr.axes));
  const auto bytes = static_cast<double>(bytes_of(instr));
  const double share = (n - 1) / n * bytes;
  switch (transfer_of(instr)) {
    case TransferKind::send:
    case TransferKind::permute: return {bytes, "all of it to one rank", 1, bytes};
    case TransferKind::recv: return {0, "nothing: it receives", 1, bytes};
    case TransferKind::broadcast: return broadcast(program, instr, bytes);
    case TransferKind::all_reduce:
      return {2 * share, fmt::format("2 (n-1)/n of its bytes, n = {}", n), 2 * (n - 1), 2 * share};
    default: return {share, fmt::format("(n-1)/n of its bytes, n = {}", n), n - 1, share};
  }
}

}  // namespace tenon
