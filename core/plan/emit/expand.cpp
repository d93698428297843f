#include "plan/emit/expand.h"

#include <array>

namespace tenon {
namespace {

// A part of `like`, with those of its attributes that the part's kind has.
Instr kernel(const ProgramBuilder& builder, const Instr& like, const char* kind, std::vector<Operand> in,
             std::vector<Operand> out) {
  Instr instr = builder.begin(kind, like.phase);
  instr.layer = like.layer;
  instr.attrs = part_attrs(*find_kind(kind), like.attrs);
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
  return graph.value(op.in[op.def->input("logits")]).placement.dims.back();
}

void emit_cross_entropy(ProgramBuilder& builder, Instr instr, const std::vector<AxisId>& axes) {
  if (axes.empty()) return builder.push(std::move(instr));
  const Operand &logits = input(instr, "logits"), &targets = input(instr, "targets");
  const Operand& lse = output(instr, "lse");
  const Operand mine = scratch_like(builder, lse, ".part"), picked = scratch_like(builder, lse, ".picked");
  Instr shard = kernel(builder, instr, "cross_entropy_shard", {logits, targets}, {mine, picked});
  shard.axes = axes;
  shard.offset_step = logits.dims.back();
  builder.push(std::move(shard));
  std::vector<int64_t> dims = lse.dims;
  dims.insert(dims.begin(), builder.mesh().size(axes));
  const Operand parts = builder.scratch(lse.name + ".parts", lse.dtype, dims);
  builder.collective(TransferKind::all_gather, axes, instr.phase, mine, parts);
  builder.collective(TransferKind::all_reduce, axes, instr.phase, picked, picked);
  builder.push(kernel(builder, instr, "cross_entropy_join", {parts, picked, targets}, instr.out));
}

// -- ring attention ---------------------------------------------------------------------------------
// Keys and values travel around the ring while each rank attends to the block that it has (Liu, Zaharia,
// Abbeel, "Ring Attention with Blockwise Transformers", 2023). Positions decide what a query sees, so any cut
// of the sequence is right.

std::vector<AxisId> key_axes(const Graph& graph, const Op& op) {
  return graph.value(op.in[op.def->input("k")]).placement.dims[1];
}

// What travels: keys, values and the keys' positions.
struct Block {
  Operand k, v, positions;

  static Block of(const Instr& instr) { return {input(instr, "k"), input(instr, "v"), input(instr, "kpos")}; }
  void put_into(Instr& instr) const {
    input(instr, "k") = k;
    input(instr, "v") = v;
    input(instr, "kpos") = positions;
  }
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
  instr.kind = find_op(instr.kind)->computes;
  const int64_t n = builder.mesh().size(axes);
  Block block = Block::of(instr);
  for (int64_t i = 0; i < n; ++i) {
    const Block here = block;
    if (i + 1 < n) block = next_block(builder, here, axes, instr.phase);
    Instr step = instr;
    here.put_into(step);
    if (i > 0) {
      for (Operand& out : step.out) out = scratch_like(builder, out, ".block");
    }
    const Operand part = output(step, "o"), part_lse = output(step, "lse");
    builder.push(std::move(step));
    if (i == 0) continue;
    Instr merge = kernel(builder, instr, "attention_merge", {part, part_lse}, instr.out);
    merge.accumulate = true;
    builder.push(std::move(merge));
  }
}

// The gradients of a block travel with it: each rank adds its share, and the last shift brings them home.
void emit_ring_dgrad(ProgramBuilder& builder, Instr instr, const std::vector<AxisId>& axes) {
  instr.kind = find_op(instr.kind)->computes;
  const int64_t n = builder.mesh().size(axes);
  if (n == 1) return builder.push(std::move(instr));
  Block block = Block::of(instr);
  const Operand &sum_q = output(instr, "dq"), &home_k = output(instr, "dk"), &home_v = output(instr, "dv");
  Operand dk, dv;
  for (int64_t i = 0; i < n; ++i) {
    const Block here = block;
    if (i + 1 < n) block = next_block(builder, here, axes, instr.phase);
    Instr step = instr;
    here.put_into(step);
    const Operand dq = i == 0 ? sum_q : scratch_like(builder, sum_q, ".block");
    const Operand share_k = scratch_like(builder, home_k, ".block"),
                  share_v = scratch_like(builder, home_v, ".block");
    output(step, "dq") = dq;
    output(step, "dk") = share_k;
    output(step, "dv") = share_v;
    builder.push(std::move(step));
    if (i == 0) {
      dk = share_k;
      dv = share_v;
      continue;
    }
    builder.add(sum_q, dq, instr.phase);
    const Operand come_k = scratch_like(builder, dk, ""), come_v = scratch_like(builder, dv, "");
    builder.shift(axes, dk, come_k, instr.phase);
    builder.shift(axes, dv, come_v, instr.phase);
    dk = builder.add(come_k, share_k, instr.phase);
    dv = builder.add(come_v, share_v, instr.phase);
  }
  builder.shift(axes, dk, home_k, instr.phase);
  builder.shift(axes, dv, home_v, instr.phase);
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
