// The rows of the op table, read: operands with names, types and dims, sharding rules, and a look-up by kind.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/op_table.h"
#include "graph/placement.h"
#include "graph/transfer.h"

namespace tenon {

// What a rule says about the size of a dim beyond its letter: `n=s/group` (divides), or `v=rows`.
struct SizeNote {
  size_t operand = 0, dim = 0;  // of the inputs or of the outputs; none of them has a variadic part
  bool divides = false;
  std::string attr;
  std::string letter;  // whose name the dim gets: n, v
};

struct OperandDef {
  enum class Type : uint8_t { real, any, f64, i64, i32 };  // real: the graph's float; any: as input 0
  std::string name;
  std::vector<std::string> dims;   // letters: "b", "k..", "?"
  std::vector<std::string> words;  // the dims as written: "n=s/group"
  Type type = Type::real;
  bool accumulates = false;
};

// A limit of an attribute's value, or of a letter's size.
enum class Limit : uint8_t { at_least, at_most, above, below, multiple };
struct LimitWords {
  Limit limit;
  const char* sign;   // in rows: ">="
  const char* words;  // "at least"
};
std::span<const LimitWords> limit_table();
const LimitWords& words_of(Limit limit);
// Whether a value keeps to its limit. A NaN does not. Sizes, at most kMaxElements, are exact as doubles.
bool keeps(Limit limit, double value, double than);

struct AttrBound {
  Limit limit = Limit::at_least;
  double than = 0;
};

struct AttrDef {
  std::string name;
  bool integer = false;
  bool of_graph = false;  // of graph_attrs
  std::vector<AttrBound> bounds = {};
};

// One of a row's `sizes`: a letter, whose size keeps to a number, an attribute or the size of another letter.
struct SizeLimit {
  std::string letter;
  Limit limit = Limit::at_most;
  std::string than;
};

// One step of what a row's `parts` says: operands by name.
struct PartDef {
  std::string kind;
  std::vector<std::string> in, out;
};

struct OpDef : OpRow {
  OpUse use = OpUse::graph;
  std::vector<OperandDef> in, out;
  bool variadic = false;           // the first input stands for any number of them
  std::vector<AttrDef> attr_defs;  // of the row's two lists
  // The sharding rule "b s h, h -> b s h", and the sets of inputs by index, for instantiate_rule().
  std::string rule, linear_inputs;
  std::vector<SizeNote> in_notes, out_notes;
  std::vector<SizeLimit> size_limits;  // `sizes`, and that of "n=s/group" the group divides s
  int inplace_input = -1;
  std::vector<PartDef> made_of;  // `parts`

  // Where an operand of that name is. The name must be one of the row's.
  size_t input(std::string_view name) const;
  size_t output(std::string_view name) const;
};

// All rows, those of graphs first. find_op() has these alone, find_kind() every row; NULL: no such kind.
std::span<const OpDef> op_table();
const OpDef* find_op(std::string_view kind);
const OpDef* find_kind(std::string_view kind);
// The position of an operand of that name; none: there is no such operand.
std::optional<size_t> find_operand(std::span<const OperandDef> operands, std::string_view name);

// The rule for operands of the given ranks (variadic inputs expanded).
Result<Rule> rule_of(const OpDef& def, const std::vector<size_t>& input_ranks);
// The attributes of a kernel that runs a part of an op: those of the op's own that the row of the part's kind
// has, and of a shard its place, where the first shard's `start` is 0; each rank adds its own.
Attrs part_attrs(const OpDef& part, const Attrs& attrs);

// How an op of a graph reshards its operand; none: it computes.
TransferKind reshard_of(const OpDef& def);

}  // namespace tenon
