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

// Tokens, vocabulary and width.
std::string head_name(const Instr& instr) {
  const int64_t tokens = instr.in[2].elements(), vocabulary = instr.in[1].dims[0];
  return fmt::format("{} {} x {} x {}", instr.kind, tokens, vocabulary, instr.in[1].elements() / vocabulary);
}

std::string name_of(const Instr& instr) {
  if (is_fused_head(instr)) return head_name(instr);
  if (instr.kind.starts_with("linear")) return product_name(instr);
  const bool reduces = instr.out.empty() || (instr.out[0].elements() == 1 && !instr.in.empty());
  const Operand& shown = reduces ? instr.in[0] : instr.out[0];
  return fmt::format("{} [{}]", instr.kind, fmt::join(shown.dims, " "));
}

double bytes_moved(const Instr& instr) {
  const bool table = instr.kind.starts_with("embedding"), gradient = instr.kind.ends_with("wgrad");
  const bool gathers = table && !gradient, scatters = table && gradient && instr.accumulate;
  double bytes = 0;
  for (size_t i = 0; i < instr.in.size(); ++i)
    bytes += static_cast<double>((gathers && i == 1 ? instr.out[0] : instr.in[i]).bytes());
  if (instr.kind == "update") bytes = static_cast<double>(instr.in[0].bytes());  // all else is in and out
  for (size_t k = 0; k < instr.out.size(); ++k) {
    const bool twice = adds_into(instr, k) || instr.kind == "update";
    bytes += static_cast<double>((scatters ? instr.in[0] : instr.out[k]).bytes()) * (twice ? 2 : 1);
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
