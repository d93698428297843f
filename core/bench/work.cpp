#include "bench/work.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "plan/program/contributions.h"

namespace tenon::bench {
namespace {

// Rows, outputs and sum of a product. Every operand is the product of two of the three, all of them together
// their square.
std::string product_name(const Instr& instr) {
  const auto x = static_cast<double>(instr.in[0].elements()), w = static_cast<double>(instr.in[1].elements());
  const double all = std::sqrt(x * w * static_cast<double>(instr.out[0].elements()));
  return fmt::format("{} {:.0f} x {:.0f} x {:.0f}", instr.kind, all / w, all / x,
                     all / static_cast<double>(instr.out[0].elements()));
}

// The head's product and the cross-entropy as one kernel, with gradients or without.
bool is_fused_head(const Instr& instr) { return makes_loss(instr) && find_input(instr, "w") != nullptr; }

// Tokens, vocabulary and width.
std::string head_name(const Instr& instr) {
  return fmt::format("{} {} x {} x {}", instr.kind, input(instr, "targets").elements(),
                     size_of_letter(instr, "v").value_or(1), size_of_letter(instr, "k..").value_or(1));
}

std::string name_of(const Instr& instr) {
  if (is_fused_head(instr)) return head_name(instr);
  if (instr.kind.starts_with("linear")) return product_name(instr);
  const bool reduces = instr.out.empty() || (instr.out[0].elements() == 1 && !instr.in.empty());
  const Operand& shown = reduces ? instr.in[0] : instr.out[0];
  return fmt::format("{} [{}]", instr.kind, fmt::join(shown.dims, " "));
}

// Reads the gradient; all else is in and out. Statistics are read from the same.
double bytes_of_update(const Instr& instr) {
  double bytes = static_cast<double>(optimizer_operands(instr).grad.bytes());
  for (const Operand& out : instr.out) bytes += 2 * static_cast<double>(out.bytes());
  return bytes;
}

// A table is read, or its gradient added to, only where the ids say.
double bytes_moved(const Instr& instr) {
  if (instr.kind == "update") return bytes_of_update(instr);
  const bool by_ids = find_input(instr, "ids") != nullptr;
  const Operand *table = by_ids ? find_input(instr, "w") : nullptr,
                *rows = by_ids && instr.accumulate ? find_input(instr, "dy") : nullptr;
  double bytes = 0;
  for (const Operand& in : instr.in) bytes += static_cast<double>((&in == table ? instr.out[0] : in).bytes());
  for (size_t k = 0; k < instr.out.size(); ++k) {
    const Operand& touched = rows != nullptr ? *rows : instr.out[k];
    bytes += static_cast<double>(touched.bytes()) * (adds_into(instr, k) ? 2 : 1);
  }
  return bytes;
}

}  // namespace

Work work_of(const Instr& instr) {
  const auto& any =
      instr.out.empty() || is_fused_head(instr) ? instr.in : instr.out;  // a head's loss is always f64
  const bool wide = !any.empty() && any[0].dtype == Dtype::f64;
  return {name_of(instr) + (instr.accumulate ? " +=" : ""), instr.flops * (wide ? 2 : 1), bytes_moved(instr)};
}

}  // namespace tenon::bench
