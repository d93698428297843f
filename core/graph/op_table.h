// The op table: every kind that a kernels plugin runs or that a graph holds is one row, and all else that
// Tenon says about it follows from the row: inference and sharding (graph/ops.h, graph/infer.h), gradients
// (graph/autodiff.h), and, through scripts/dev/generate-docs, the signatures of tenon_sdk/ops.hpp,
// docs/reference/ops.md and scripts/tenon/ops.lua. docs/howto/add-an-op.md adds a row.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"

namespace tenon {

class Backward;  // graph/autodiff.h
struct Op;       // graph/graph.h

// graph: ops of recipes, of their gradients and of the step; the others are made of them. piece: what a
// strategy or a layout turns an op into; fused: one kernel for the neighbours that `parts` names.
enum class OpUse : uint8_t { graph, piece, fused };

// Who runs it. exchange: several instructions, see plan/emit/expand.h.
enum class OpRunner : uint8_t { kernel, exchange, optimizer, comm };

// A field that is not named in a row is empty, 0 or false.
struct OpRow {
  const char* kind = "";
  // Operands, "name[dims] dtype acc", separated by commas. Equal letters are equal sizes; `k..` stands for
  // any number of dims, "?" for dims that the op itself checks. A dim may say more: `n=s/group` has one for
  // every `group` (an attribute) of the letter s, and `v=rows` is as large as the attribute says. dtype:
  // float (f32 or f64, that of the graph; the default), any (the same for all) or a fixed one. acc: the op
  // may add into this output. "*name" stands for any number of inputs.
  const char* inputs = "";
  const char* outputs = "";
  // "eps float >0, inverse int >=0 <=1": all required, no others allowed; behind the type, its range.
  const char* attrs = "";
  const char* graph_attrs = "";  // more of them: kernels see these in their operands' sizes
  // What sizes must be beside equal: "d%2, k<=e, v>=1"; a letter's size, and a number, an attribute's value
  // or another letter's size that divides it or bounds it.
  const char* sizes = "";
  const char* doc = "";  // what it computes, for docs/reference/ops.md
  OpRunner runner = OpRunner::kernel;
  const char* inplace = "";  // output 0 may take over the memory of this input
  // The op is there in training alone: in a program that does not train, this input stands for its output.
  const char* training_only = "";
  double flops = 0;  // per point of the product of all letters

  // Sharding. A letter may be sharded, and one that no output has is then summed over, unless it stands in
  // `whole`; "!v": the op exchanges over v itself. `linear`: sets of inputs in which the op is jointly
  // linear, so that it may run on partial sums of exactly these: "x|w", "x,y".
  const char* whole = "";
  const char* linear = "";
  bool of_plans = false;  // plans sum, copy and measure gradients with it, whether the model has one or not
  bool absorbs = false;   // takes inputs that are partial sums over any axes and reduces them itself
  // A letter whose shards need a kernel of another kind, which an attribute `start` tells the index that is
  // the shard's first; and that kind.
  const char* offset = "";
  const char* shard_kind = "";

  // Outputs that are sums over tokens, of which each microbatch and each rank that has tokens gives a share:
  // of the step's loss, and of the number of tokens that the loss is divided by.
  const char* loss = "";
  const char* count = "";
  // Attributes: the key of the random numbers that it draws, which is made another one by the recipe's seed
  // and by each round of a repeat; and how many consecutive tokens it looks at together, which are never cut.
  const char* random_key = "";
  const char* token_group = "";

  // Gradients: the kinds of the ops that compute those of parameters and of other inputs, and the inputs that
  // the gradient of output 0 passes to unchanged ("x y"). Operands of these ops are found by their names:
  // `dy` is the gradient of y, any other name an operand of the op itself.
  const char* weight_grad = "";
  const char* input_grad = "";
  const char* passes = "";
  Status (*backward)(Backward&, const Op&) = nullptr;  // in place of these three

  // What it is the same as, "z = add(x, y); n, mean, rstd = layernorm(z, w, b)"; "_" is nobody's. fused: the
  // neighbours that it stands for, in their order. exchange: the pieces that it is where it is cut.
  const char* parts = "";
  // The kind that computes the same of operands that are not cut.
  const char* computes = "";
};

std::span<const OpRow> graph_rows();
std::span<const OpRow> piece_rows();
std::span<const OpRow> fused_rows();

// What a letter of the operands' dims stands for: the name of such a dim in recipes, and in words.
struct DimLetter {
  const char* letter;
  const char* name;
  const char* doc;
};
std::span<const DimLetter> dim_letters();

}  // namespace tenon
