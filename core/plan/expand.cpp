#include "plan/expand.h"

#include <array>

namespace tenon {
namespace {

Instr kernel(const ProgramBuilder& builder, const Instr& like, const char* kind, std::vector<Operand> in,
             std::vector<Operand> out) {
  Instr instr = builder.begin(kind, like.phase);
  instr.layer = like.layer;
  instr.in = std::move(in);
  instr.out = std::move(out);
  return instr;
}

Operand scratch_like(ProgramBuilder& builder, const Operand& like, const std::string& suffix) {
  return builder.scratch(like.name + suffix, like.dtype, like.dims);
}

// -- cross entropy over a sharded vocabulary --------------------------------------------------------
// Each rank's log of its sum of exponentials is gathered, its share of the targets' logits summed (Shoeybi et
// al., "Megatron-LM", 2019, exchange the same numbers per token; gathering the logs needs no maximum first).

std::vector<AxisId> vocabulary_axes(const Graph& graph, const Op& op) {
  return graph.value(op.in[0]).placement.dims.back();
}

void emit_cross_entropy(ProgramBuilder& builder, Instr instr, const std::vector<AxisId>& axes) {
  if (axes.empty()) return builder.push(std::move(instr));
  const Operand& logits = instr.in[0];
  const Operand& lse = instr.out[2];
  const Operand mine = scratch_like(builder, lse, ".part"), picked = scratch_like(builder, lse, ".picked");
  Instr shard = kernel(builder, instr, "cross_entropy_shard", instr.in, {mine, picked});
  shard.attrs = {{"start", int64_t{0}}};
  shard.axes = axes;
  shard.offset_step = logits.dims.back();
  builder.push(std::move(shard));
  std::vector<int64_t> dims = lse.dims;
  dims.insert(dims.begin(), builder.mesh().size(axes));
  const Operand parts = builder.scratch(lse.name + ".parts", lse.dtype, dims);
  builder.collective("all_gather", axes, instr.phase, mine, parts);
  builder.collective("all_reduce", axes, instr.phase, picked, picked);
  builder.push(kernel(builder, instr, "cross_entropy_join", {parts, picked, instr.in[1]}, instr.out));
}

// -- ring attention ---------------------------------------------------------------------------------
// Keys and values travel around the ring while each rank attends to the block that it has (Liu, Zaharia,
// Abbeel, "Ring Attention with Blockwise Transformers", 2023). Positions decide what a query sees, so any cut
// of the sequence is right.

std::vector<AxisId> key_axes(const Graph& graph, const Op& op) {
  const bool gradient = std::string_view(op.def->kind) == "attention_ring_dgrad";
  return graph.value(op.in[gradient ? 2 : 1]).placement.dims[1];
}

// What travels: keys, values and the keys' positions.
struct Block {
  Operand k, v, positions;
};

Block next_block(ProgramBuilder& builder, const Block& block, const std::vector<AxisId>& axes, Phase phase) {
  Block next{scratch_like(builder, block.k, ""), scratch_like(builder, block.v, ""),
             scratch_like(builder, block.positions, "")};
  builder.shift(axes, block.k, next.k, phase);
  builder.shift(axes, block.v, next.v, phase);
  builder.shift(axes, block.positions, next.positions, phase);
  return next;
}

void emit_ring(ProgramBuilder& builder, Instr instr, const std::vector<AxisId>& axes) {
  instr.kind = "attention";
  const int64_t n = builder.mesh().size(axes);
  Block block{instr.in[1], instr.in[2], instr.in[4]};
  for (int64_t i = 0; i < n; ++i) {
    const Block here = block;
    if (i + 1 < n) block = next_block(builder, here, axes, instr.phase);
    Instr step = instr;
    step.in = {instr.in[0], here.k, here.v, instr.in[3], here.positions};
    if (i > 0)
      step.out = {scratch_like(builder, instr.out[0], ".block"),
                  scratch_like(builder, instr.out[1], ".block")};
    const std::vector<Operand> out = step.out;
    builder.push(std::move(step));
    if (i == 0) continue;
    Instr merge = kernel(builder, instr, "attention_merge", out, instr.out);
    merge.accumulate = true;
    builder.push(std::move(merge));
  }
}

// The gradients of a block travel with it: each rank adds its share, and the last shift brings them home.
void emit_ring_dgrad(ProgramBuilder& builder, Instr instr, const std::vector<AxisId>& axes) {
  instr.kind = "attention_dgrad";
  const int64_t n = builder.mesh().size(axes);
  if (n == 1) return builder.push(std::move(instr));
  Block block{instr.in[2], instr.in[3], instr.in[7]};
  Operand dk, dv;
  for (int64_t i = 0; i < n; ++i) {
    const Block here = block;
    if (i + 1 < n) block = next_block(builder, here, axes, instr.phase);
    Instr step = instr;
    step.in[2] = here.k;
    step.in[3] = here.v;
    step.in[7] = here.positions;
    const Operand dq = i == 0 ? instr.out[0] : scratch_like(builder, instr.out[0], ".block");
    const Operand share_k = scratch_like(builder, instr.out[1], ".block"),
                  share_v = scratch_like(builder, instr.out[2], ".block");
    step.out = {dq, share_k, share_v};
    builder.push(std::move(step));
    if (i == 0) {
      dk = share_k;
      dv = share_v;
      continue;
    }
    builder.add(instr.out[0], dq, instr.phase);
    const Operand come_k = scratch_like(builder, dk, ""), come_v = scratch_like(builder, dv, "");
    builder.shift(axes, dk, come_k, instr.phase);
    builder.shift(axes, dv, come_v, instr.phase);
    dk = builder.add(come_k, share_k, instr.phase);
    dv = builder.add(come_v, share_v, instr.phase);
  }
  builder.shift(axes, dk, instr.out[1], instr.phase);
  builder.shift(axes, dv, instr.out[2], instr.phase);
}

constexpr std::array<Expansion, 3> kExpansions{{
    {"cross_entropy", vocabulary_axes, emit_cross_entropy},
    {"attention_ring", key_axes, emit_ring},
    {"attention_ring_dgrad", key_axes, emit_ring_dgrad},
}};

}  // namespace

const Expansion* find_expansion(std::string_view kind) {
  for (const Expansion& expansion : kExpansions) {
    if (kind == expansion.kind) return &expansion;
  }
  return nullptr;
}

}  // namespace tenon
