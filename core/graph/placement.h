// Where a value lives on the mesh, and how an op's sharding rule maps placements of its inputs to
// placements of its outputs. Wrong gradients are type errors here: a missing reduction is a partial
// that reaches an op which does not accept one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/types.h"
#include "tenon/comm.h"

namespace tenon {

using AxisId = uint32_t;  // index into Mesh::axes

struct Axis {
  std::string name;
  int64_t size = 1;
  std::string part_of = {};  // the recipe's axis that was split; empty: it is one
  bool operator==(const Axis&) const = default;
};

// Ordered product of atomic axes, major first. rank = mixed-radix number of the coordinates.
struct Mesh {
  std::vector<Axis> axes;

  int64_t world() const;
  std::optional<AxisId> find(std::string_view name) const;
  // The axis of that name, or its atoms: "dp" is dp_out and dp_in where those are axes. In the mesh's order.
  std::vector<AxisId> find_all(std::string_view name) const;
  // The mesh, in which some atoms of an axis, the major ones, have `outer` ranks together: where none have,
  // one is split into "tp_out" and "tp_in". Ranks keep their numbers. Nothing: the sizes do not divide, or
  // another axis has a part's name, which `taken`, where given, is then.
  std::optional<Mesh> split(std::string_view name, int64_t outer, std::string* taken = nullptr) const;
  std::vector<int64_t> coordinate(int64_t rank) const;
  int64_t rank(const std::vector<int64_t>& coordinate) const;
  // World ranks that share every coordinate of `rank` except those of `axes`, in rank order.
  std::vector<int32_t> group(int64_t rank, const std::vector<AxisId>& axes) const;
  int64_t size(const std::vector<AxisId>& axes) const;
  std::string text() const;                                // "dp 2 x tp 4"
  std::string names(const std::vector<AxisId>& of) const;  // "dp,tp"
};

enum class Reduction : uint32_t { sum = TENON_SUM, max = TENON_MAX };

struct Partial {
  AxisId axis = 0;
  Reduction reduction = Reduction::sum;
  bool operator==(const Partial&) const = default;
};

// Per dim, the axes that shard it (major first); and the axes over which the value is a partial
// result. An axis occurs at most once in a placement. Axes that do not occur: replicated.
struct Placement {
  std::vector<std::vector<AxisId>> dims;
  std::vector<Partial> partials;  // sorted by axis

  static Placement replicated(size_t ndim) { return Placement{std::vector<std::vector<AxisId>>(ndim), {}}; }
  bool is_replicated() const;
  bool is_partial(AxisId axis) const;
  // The dim that `axis` shards, if any.
  std::optional<size_t> sharded_dim(AxisId axis) const;
  void add_partial(AxisId axis, Reduction reduction);
  void remove_partial(AxisId axis);
  bool operator==(const Placement&) const = default;
};

std::string text(const Placement& placement, const Dims& dims, const Mesh& mesh);  // "S(batch)@dp P@tp"
// Mixed-radix number of a coordinate on some axes, major first.
int64_t index_on(const Mesh& mesh, const std::vector<int64_t>& coordinate, const std::vector<AxisId>& axes);
// Local shape. Error P010 when a sharded dim does not divide.
Result<Dims> local_dims(const Dims& dims, const Placement& placement, const Mesh& mesh);

// A sharding rule with its variadic parts expanded: a factor for each dim of each operand.
struct Rule {
  // parallel: in every output; sum: contracted, sharding it makes partials; whole: must not be sharded;
  // exchange: contracted by an op that communicates itself, so sharding it leaves no partial.
  enum class Kind { parallel, sum, whole, exchange };
  struct Factor {
    std::string name;
    Kind kind = Kind::parallel;
  };
  std::vector<Factor> factors;
  std::vector<std::vector<int>> inputs;  // factor of each dim
  std::vector<std::vector<int>> outputs;
  // Sets of inputs in which the op is jointly linear: if exactly these are partial, so are the outputs.
  std::vector<std::vector<int>> linear;
};

// Instantiates "b s k.., o.. k.. -> b s o.." for operands of the given ranks. `whole` lists factors
// that must not be sharded, "!v" one over which the op exchanges itself; any other factor that no output
// has is summed over. `linear` is "0|1" or "0,1". Error G001 when the ranks do not fit.
Result<Rule> instantiate_rule(const std::string& rule, const std::string& whole, const std::string& linear,
                              const std::vector<size_t>& input_ranks);

// What an op makes of its inputs' placements.
struct Typing {
  std::vector<Placement> inputs;   // what each input must be resharded to (equal to given: nothing to do)
  std::vector<Placement> outputs;  // what the outputs then are
};
// `given`: actual placements of the inputs; `wanted`: pinned placements of the outputs, where set.
// Factors take their axes from the inputs marked `stays` in order, then from the other inputs, then from
// pinned outputs; a later operand that disagrees is resharded. Of a dim whose axes are partly taken, the
// outer ones up to the first taken are used. Default deny: partials survive only through a linear set.
Typing type_op(const Rule& rule, const std::vector<Placement>& given,
               const std::vector<std::optional<Placement>>& wanted, const std::vector<bool>& stays = {});

}  // namespace tenon
