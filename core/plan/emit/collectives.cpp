#include "plan/emit/collectives.h"

namespace tenon {
namespace {

// Rows [lo, lo + n) of parts added up; the result is in row lo.
Operand add_tree(ProgramBuilder& builder, const Operand& parts, int64_t lo, int64_t n, Phase phase) {
  const int64_t size = parts.dims[1];
  if (n == 1) return part(parts, lo * size, {size}, parts.name + "." + std::to_string(lo));
  int64_t half = 1;
  while (half * 2 < n) half *= 2;
  const Operand left = add_tree(builder, parts, lo, half, phase);
  const Operand right = add_tree(builder, parts, lo + half, n - half, phase);
  return builder.add(left, right, phase);
}

}  // namespace

void emit_all_reduce(ProgramBuilder& builder, const Operand& value, const std::vector<AxisId>& axes,
                     Phase phase, bool tree) {
  if (!tree) return builder.collective(TransferKind::all_reduce, axes, phase, value, value);
  const auto because = builder.in_tree();
  const int64_t n = builder.mesh().size(axes), size = value.elements();
  // What does not divide (scalars above all) is added up by everyone; else each rank adds its part.
  const bool divides = size % n == 0;
  const Operand parts = builder.scratch(value.name + ".parts", value.dtype, {n, divides ? size / n : size});
  builder.collective(divides ? TransferKind::all_to_all : TransferKind::all_gather, axes, phase, value,
                     parts);
  const Operand sum = add_tree(builder, parts, 0, n, phase);
  if (divides)
    builder.collective(TransferKind::all_gather, axes, phase, sum, value);
  else
    builder.copy(sum, value, phase);
}

void emit_reshard(ProgramBuilder& builder, const Reshard& reshard, const Operand& in, const Operand& out,
                  Phase phase, bool tree) {
  const int64_t n = builder.mesh().size(reshard.axes);
  switch (reshard.kind) {
    case TransferKind::reduce_scatter: {
      const Operand sent = builder.pack(in, reshard.to_dim, n, phase);
      if (!tree) {
        builder.collective(TransferKind::reduce_scatter, reshard.axes, phase, sent, out);
        break;
      }
      const auto because = builder.in_tree();
      const Operand parts = builder.scratch(in.name + ".parts", in.dtype, sent.dims);
      builder.collective(TransferKind::all_to_all, reshard.axes, phase, sent, parts);
      builder.copy(add_tree(builder, parts, 0, n, phase), out, phase);
      break;
    }
    case TransferKind::all_gather: {
      const Operand gathered = builder.scratch(in.name + ".parts", in.dtype, {n, in.elements()});
      builder.collective(TransferKind::all_gather, reshard.axes, phase, in, gathered);
      builder.unpack(gathered, in.dims, out, reshard.from_dim, phase);
      break;
    }
    case TransferKind::all_to_all: {
      const Operand sent = builder.pack(in, reshard.to_dim, n, phase);
      const Operand received = builder.scratch(in.name + ".parts", in.dtype, sent.dims);
      builder.collective(TransferKind::all_to_all, reshard.axes, phase, sent, received);
      std::vector<int64_t> dims = in.dims;
      dims[static_cast<size_t>(reshard.to_dim)] /= n;
      builder.unpack(received, dims, out, reshard.from_dim, phase);
      break;
    }
    case TransferKind::slice: builder.slice(in, out, reshard.to_dim, 0, reshard.axes, phase); break;
    default: break;
  }
}

}  // namespace tenon
