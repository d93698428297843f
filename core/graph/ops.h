// The op table: for each kind its signature, sharding rule, cost and backward. Adding an op is adding a
// row here, a row in docs/reference/ops.md and a kernel.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace tenon {

class Backward;  // graph/autodiff.h

struct TensorType {
  Dtype dtype;
  Dims dims;
};

struct OpDef {
  const char* kind;
  // One word per operand: name:type, type being f (the graph's float), d f64, i i32, l i64, a any, or
  // 0 (outputs: as input 0). A first input ending in '*' stands for any number of them.
  const char* inputs;
  const char* outputs;
  // Shapes and sharding at once; see instantiate_rule. Here a dim may say more: `s/group` has one for every
  // `group` (an attribute) of the factor s, and `v=rows` is as large as the attribute says.
  const char* rule;
  const char* whole;         // factors that must not be sharded; "!v": over which the op exchanges itself
  const char* linear;        // sets of inputs jointly linear in partials
  const char* attrs;         // "eps:f inverse:i": all required, no others allowed
  double flops;              // per point of the product of all factors
  int inplace = -1;          // output 0 may take over the memory of this input
  bool accumulates = false;  // may add into its outputs
  Status (*backward)(Backward&, const Op&) = nullptr;
  // A factor whose shards need a kernel of another kind, told by its attribute `start` which index is the
  // shard's first; and that kind.
  const char* offset = "";
  const char* shard_kind = "";
  // Takes inputs that are partial sums over any axes and reduces them itself.
  bool absorbs = false;

  // Derived from the strings above when the table is made.
  std::vector<std::string> input_names = {}, output_names = {};
  std::string input_types = {}, output_types = {};
  bool variadic = false;
};

std::span<const OpDef> op_table();
const OpDef* find_op(std::string_view kind);
// The rule for operands of the given ranks (variadic inputs expanded).
Result<Rule> rule_of(const OpDef& def, const std::vector<size_t>& input_ranks);
// Checks operands and attributes, gives the outputs' types. Errors G002 to G004.
Result<std::vector<TensorType>> infer_outputs(const OpDef& def, const Graph& graph,
                                              const std::vector<ValueId>& in, const Attrs& attrs);
// Floating-point operations of one call on the given dims (collectives: 0).
double flops_of(const Graph& graph, const Op& op);

// Kinds that move data between ranks, and the local half of a reshard.
enum class Collective : uint8_t { none, all_reduce, reduce_scatter, all_gather, all_to_all, slice };
Collective collective_of(const OpDef& def);

}  // namespace tenon
