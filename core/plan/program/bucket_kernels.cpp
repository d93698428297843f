#include "plan/program/bucket_kernels.h"

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
std::vector<Instr> norm_kernels(const Instr& instr, const FlatLayout& layout, const FlatPart& part) {
  const int64_t chunk = attr_int(instr.attrs, "chunk");
  std::vector<Instr> out;
  int64_t entry = 0;
  for (size_t l = 0; l < layout.leaves.size(); ++l) {
    const FlatLayout::Leaf& leaf = layout.leaves[l];
    const LeafPart mine = leaf_in(leaf, part);
    if (mine.count > 0) {
      Instr& norm = out.emplace_back();
      norm.kind = chunk > 0 ? "sqnorm_chunks" : "sqnorm";
      norm.workspace = instr.workspace;
      norm.in = {range(instr.in[0], mine.at, mine.count)};
      const int64_t chunks = chunk > 0 ? (mine.count + chunk - 1) / chunk : 1;
      norm.out = {range(instr.out[0], entry + (chunk > 0 ? mine.first / chunk : 0), chunks)};
      if (chunk > 0)
        norm.attrs = {{"chunk", chunk}};
      else
        norm.out[0].dims = {};
    }
    entry += norm_entries(leaf, chunk);
  }
  return out;
}

// What a rank updates, out of the parameters that it holds.
std::vector<Instr> copy_kernels(const Instr& instr, const FlatPart& held, const FlatPart& part) {
  if (part.count == 0) return {};
  Instr copy;
  copy.kind = "slice";
  copy.workspace = instr.workspace;
  copy.in = instr.in;
  copy.out = {range(instr.out[0], 0, part.count)};
  copy.attrs = {{"dim", int64_t{0}}, {"start", part.first - held.first}, {"size", part.count}};
  return {copy};
}

}  // namespace

std::span<const Instr> kernels_of(const Program& program, const Instr& instr, std::optional<size_t> member,
                                  std::vector<Instr>& storage) {
  if (is_optimizers(instr)) return {};
  if (instr.kind != "norms" && instr.kind != "own_part") return {&instr, 1};
  const FlatLayout& layout = program.layouts[static_cast<size_t>(instr.layout)];
  const auto at = [&](size_t depth) { return part_at(program.mesh, layout, depth, *member); };
  const auto most = [&](size_t depth) { return FlatPart{0, most_at(program.mesh, layout, depth)}; };
  if (instr.kind == "norms")
    storage = norm_kernels(instr, layout, member ? at(layout.depth()) : FlatPart{0, layout.elements});
  else if (member)
    storage = copy_kernels(instr, at(layout.param_depth), at(layout.depth()));
  else
    storage = copy_kernels(instr, most(layout.param_depth), most(layout.depth()));
  return storage;
}

}  // namespace tenon
