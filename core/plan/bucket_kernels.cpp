#include "plan/bucket_kernels.h"

#include "plan/layout.h"

namespace tenon {
namespace {

// Elements [first, first + count) of an operand, as a vector.
Operand range(const Operand& operand, int64_t first, int64_t count) {
  Operand out = operand;
  out.offset += static_cast<uint64_t>(first * size_of(operand.dtype));
  out.dims = {count};
  return out;
}

// A sum of squares for each gradient, or for each of its chunks.
std::vector<Instr> norm_kernels(const Instr& instr, const FlatLayout& layout, std::optional<size_t> member) {
  const int64_t chunk = attr_int(instr.attrs, "chunk");
  std::vector<Instr> out;
  int64_t entry = 0;
  for (size_t l = 0; l < layout.leaves.size(); ++l) {
    const FlatLayout::Leaf& leaf = layout.leaves[l];
    const LeafPart part = member ? part_of(layout, l, *member) : LeafPart{0, leaf.count, 0};
    if (part.count > 0) {
      Instr& norm = out.emplace_back();
      norm.kind = chunk > 0 ? "sqnorm_chunks" : "sqnorm";
      norm.workspace = instr.workspace;
      norm.in = {range(instr.in[0], part.at, part.count)};
      const int64_t chunks = chunk > 0 ? (part.count + chunk - 1) / chunk : 1;
      norm.out = {range(instr.out[0], entry + (chunk > 0 ? part.first / chunk : 0), chunks)};
      if (chunk > 0)
        norm.attrs = {{"chunk", chunk}};
      else
        norm.out[0].dims = {};
    }
    entry += norm_entries(leaf, chunk);
  }
  return out;
}

// A member's part of a bucket, copied out.
std::vector<Instr> copy_kernels(const Instr& instr, const FlatLayout& layout, std::optional<size_t> member) {
  const int64_t first = member ? layout.cuts[*member] : 0;
  const int64_t count = member ? layout.count(*member) : layout.most();
  if (count == 0) return {};
  Instr copy;
  copy.kind = "slice";
  copy.workspace = instr.workspace;
  copy.in = instr.in;
  copy.out = {range(instr.out[0], 0, count)};
  copy.attrs = {{"dim", int64_t{0}}, {"start", first}, {"size", count}};
  return {copy};
}

}  // namespace

std::span<const Instr> kernels_of(const Program& program, const Instr& instr, std::optional<size_t> member,
                                  std::vector<Instr>& storage) {
  if (instr.kind == "update") return {};
  if (instr.kind != "norms" && instr.kind != "own_part") return {&instr, 1};
  const FlatLayout& layout = program.layouts[static_cast<size_t>(instr.layout)];
  storage = instr.kind == "norms" ? norm_kernels(instr, layout, member) : copy_kernels(instr, layout, member);
  return storage;
}

}  // namespace tenon
