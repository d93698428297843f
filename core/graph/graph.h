// The graph: SSA values and coarse ops over one logical device. The same container holds the forward
// graph of a recipe and, after autodiff and propagation, the joint graph with every value placed.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/assert.h"
#include "graph/placement.h"
#include "graph/types.h"

namespace tenon {

struct OpDef;  // graph/ops.h

enum class Role : uint32_t { input, act, param, grad, state, scalar };

// Which part of a step an op belongs to. The first three run once per microbatch, `step` once.
enum class Phase : uint8_t { forward, input_grad, weight_grad, step };
const char* name_of(Phase phase);

struct Init {
  enum class Kind : uint8_t { zeros, ones, normal, uniform };
  Kind kind = Kind::zeros;
  double scale = 0;  // normal: standard deviation; uniform: bound
};

// What a pass said about a value and one mesh axis. An axis that no pin mentions is left to propagation,
// which is not the same as replicated.
struct Pin {
  AxisId axis = 0;
  std::optional<size_t> dim;  // sharded by; unset: replicated over the axis
  std::string by;             // the pass
  bool operator==(const Pin&) const = default;
};

// Where a parameter rests between its uses: cut into flat ranges over the axes. Level 1: the optimizer's
// state, 2: its gradient too, 3: the parameter itself too (Rajbhandari et al., "ZeRO", 2020).
struct Storage {
  int level = 0;
  std::vector<AxisId> axes;
  std::vector<AxisId> within;  // of `axes`: those that cut the parameter itself; empty: all
  std::string by;
  bool operator==(const Storage&) const = default;
};

// The strategy that cut a value over an axis, and the value of which it said so: others follow.
struct Origin {
  AxisId axis = 0;
  ValueId pinned = kNone;
  std::string by;
};

struct Value {
  std::string name;
  Dtype dtype = Dtype::f32;
  Dims dims;
  Role role = Role::act;
  int layer = -1;  // counted over the rounds of all repeats; -1: outside
  OpId producer = kNone;
  Init init;                    // parameters only
  std::vector<Pin> pins;        // in the order in which they were set, at most one for an axis
  Storage storage;              // parameters only
  std::vector<AxisId> late;     // over which its gradient may stay a partial sum where rules allow it
  Placement placement;          // known after propagation
  std::vector<Origin> origins;  // of the placement's axes
  std::string pointer;          // parameters only: where the recipe has it
};

// Why a placed graph has a collective: recorded as it is inserted. Ids are those of the placed graph.
struct Reason {
  enum class Because : uint8_t {
    whole,         // the reader's rule: `factor` is not to be cut
    no_partial,    // the reader's rule: it takes no partial sum of this operand
    beside,        // the reader's rule: it takes none beside `decider`, another operand, as that is
    operand,       // the reader is cut as `decider`: another operand or a result of it, or of which it reads
                   // or makes the gradient
    as_forward,    // a gradient is used in the placement in which `decider`, its forward value, was made
    in_place,      // the reader overwrites `decider` where that is
    accumulation,  // all that adds into the gradient `decider` agrees to leave the axis out
    pin,           // a strategy said so of the value itself
    output,        // every rank is told the value
  };
  Because because = Because::output;
  ValueId value = kNone;  // that is moved, as it was made
  Placement had, wanted;  // before the first and behind the last collective on the way
  OpId reader = kNone;    // pin: the op that makes the value
  ValueId decider = kNone;
  std::string factor;
  Origin had_by, wanted_by;  // of the axis; `by` is empty where nobody cut it
};

struct Op {
  const OpDef* def = nullptr;  // see Graph::become()
  std::vector<ValueId> in;
  std::vector<ValueId> out;
  SharedAttrs attrs;
  Phase phase = Phase::forward;
  int layer = -1;
  // Outputs that this op adds into: acc[k] is the value whose memory output k continues. Empty: none.
  std::vector<ValueId> acc;
  std::vector<AxisId> axes;  // collectives: the mesh axes they run over
  int stage = 0;             // of the pipeline; a backward op is on the stage of its forward op
  // Backward ops: per input, the forward value whose whole gradient it is, or kNone; per output, the value
  // to whose gradient it contributes. Empty: neither.
  std::vector<ValueId> grad_in;
  std::vector<ValueId> grad_out;
  OpId gradient_of = kNone;         // backward ops: the forward op
  std::string pointer = {};         // where the recipe has it, or the op that it is the gradient of
  std::string substituted_by = {};  // the strategy that made it an op of this kind
  uint32_t reason = kNone;          // collectives: of Graph::reasons
  // That of the kind for operands of these ranks, which the graph makes once for all such ops; none: they do
  // not fit it.
  std::shared_ptr<const Rule> rule = {};
};

class Graph {
 public:
  const std::vector<Value>& values() const { return values_; }
  const std::vector<Op>& ops() const { return ops_; }
  const Value& value(ValueId id) const {
    TENON_ASSERT(id < values_.size());
    return values_[id];
  }
  Value& value(ValueId id) {
    TENON_ASSERT(id < values_.size());
    return values_[id];
  }
  const Op& op(OpId id) const {
    TENON_ASSERT(id < ops_.size());
    return ops_[id];
  }
  Op& op(OpId id) {
    TENON_ASSERT(id < ops_.size());
    return ops_[id];
  }

  ValueId add_value(Value value);
  // Infers the outputs' types from the op's definition. Error G002 names operand and shapes.
  Result<std::vector<ValueId>> add_op(const std::string& kind, const std::vector<ValueId>& in,
                                      const Attrs& attrs, Phase phase, int layer,
                                      const std::vector<std::string>& names);
  // Appends an op whose outputs exist already as values.
  OpId append(Op op);
  // Makes an op one of another kind that has the same results.
  void become(OpId id, const OpDef& def);
  // NULL: the kind takes no operands of such ranks.
  std::shared_ptr<const Rule> rule_for(const OpDef& def, const std::vector<size_t>& ranks);
  std::optional<ValueId> find(const std::string& name) const;
  std::vector<ValueId> with_role(Role role) const;
  // How many dims each value has.
  std::vector<size_t> ranks_of(const std::vector<ValueId>& ids) const;
  // The value that an op of the model made, where collectives have moved it since; else the value itself.
  ValueId made(ValueId id) const;
  // Which operands of an op stay where they are: activations come to the weights, not the other way.
  std::vector<bool> staying(const Op& op) const;
  // One above the last stage of an op.
  int stages() const;

  Dtype real = Dtype::f32;  // what "float" means in op signatures
  AxisId pipeline = kNone;  // the mesh axis that stages are spread over
  std::string pipeline_by;  // the strategy that put ops on stages
  std::vector<Reason> reasons;

 private:
  std::vector<Value> values_;
  std::vector<Op> ops_;
  std::map<std::pair<const OpDef*, std::vector<size_t>>, std::shared_ptr<const Rule>> rules_;
};

// A value as text: "x f32[batch 8, seq 32]".
std::string text(const Graph& graph, ValueId id);

// What propagation makes of a graph.
struct PlacedGraph {
  Graph graph;
  std::vector<ValueId> map;  // value of the source graph -> value of the placed graph
};

}  // namespace tenon
