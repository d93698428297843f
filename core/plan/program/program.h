// The step program: one flat list of instructions per class of ranks, on named lanes, over planned
// memory. It is what gets printed, verified, hashed and executed.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/assert.h"
#include "base/shared.h"
#include "graph/graph.h"
#include "graph/recipe.h"
#include "graph/transfer.h"

namespace tenon {

// Where a buffer lives. Each space is one contiguous region; params and states outlive a step and are
// laid out alike in every program of a run, arena bytes are reused within a step.
enum class Space : uint8_t { param, state, input, arena };
constexpr size_t kNumSpaces = 4;
const char* name_of(Space space);
constexpr uint64_t kAlignment = 64;
inline uint64_t aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

struct Buffer {
  SharedText name;
  Space space = Space::arena;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // within its space
  bool gaps = false;    // holds aligned tensors with bytes between them that nobody means
};

using BufferId = uint32_t;
using InstrId = uint32_t;

// A tensor inside a buffer, local to a rank. Programs have millions of them, of few names and shapes.
struct Operand {
  BufferId buffer = kNone;
  uint64_t offset = 0;  // within the buffer
  Dtype dtype = Dtype::f32;
  Extents dims;
  SharedText name;

  int64_t elements() const {
    int64_t n = 1;
    for (int64_t size : dims) n *= size;
    return n;
  }
  uint64_t bytes() const { return static_cast<uint64_t>(elements()) * static_cast<uint64_t>(size_of(dtype)); }
};

// Why an instruction is there, recorded as it is made; ids are those of the joint graph that it was emitted
// from. Neither printed with the program nor hashed, but for what classes hand to each other: of that it says
// which value it is, and both ends are held to it. See plan/show/why.h.
struct Why {
  enum class Because : uint8_t {
    op,        // it is an op of the graph, or a part of one
    fold,      // it adds up what microbatches leave
    gradient,  // it brings gradients to where their parameters are updated
    gather,    // it brings parameters together that rest in parts
    norm,      // of all gradients
    stats,     // of whole parameters, for their update
    update,    // of parameters
    stage,     // it takes a value from one stage of the pipeline to another
    tied,      // several stages hold the parameter: their gradients are added
    updated,   // and what is updated is handed out
    output,    // every rank is told the value
  };
  Because because = Because::op;
  bool tree = false;      // a step of a sum in the fixed order of exact mode
  OpId op = kNone;        // op, stage: the op itself; the one that makes the value
  ValueId value = kNone;  // of a bucket, or of what crosses: the first parameter
  int stage = -1;         // stage: the first that reads it of those that the receiving rank holds
};

struct Instr {
  std::string kind;  // op kind, a transfer, "update", "stats", "norms" or "own_part"
  Phase phase = Phase::forward;
  int microbatch = -1;  // -1: once per step
  int layer = -1;
  int stage = 0;
  uint32_t lane = 0;
  std::vector<Operand> in;
  std::vector<Operand> out;  // update: parameters, then their state slots
  Operand workspace;         // buffer kNone: none
  SharedAttrs attrs;
  bool accumulate = false;
  int inplace = -1;
  std::vector<AxisId> axes;  // transfers: the group; kernels: what `offset_step` counts along
  int64_t offset_step = 0;   // added to the attribute `start` once per place on the axes
  Reduction reduction = Reduction::sum;
  int32_t peer = -1;    // send, recv: coordinate on the axis; broadcast: the root's; permute: the shift
  int32_t layout = -1;  // of Program::layouts: whose cuts the counts of a transfer, or the parts of
                        // update, stats, norms and own_part, follow
  double flops = 0;     // of one rank
  std::vector<InstrId>
      waits;  // earlier transfers that must be complete, for this and all that is listed behind
  Why why;
  std::vector<Why> fused;  // of the instructions that became this one; empty: it is one
};

// none: a kernel, or what goes to the optimizer.
inline TransferKind transfer_of(const Instr& instr) { return transfer_named(instr.kind); }
inline bool is_transfer(const Instr& instr) { return transfer_of(instr) != TransferKind::none; }

// What goes to the optimizer: of a bucket, or of what a rank updates of it,
//   stats   (grad, scale, param, state...) -> sums of the rank's part of each parameter, f64
//   update  (grad, scale[, stats]) -> param, state...
inline bool is_optimizers(const Instr& instr) { return instr.kind == "update" || instr.kind == "stats"; }
struct OptimizerOperands {
  const Operand& grad;
  const Operand& scale;
  std::span<const Operand> tensors;  // parameters, then state slots
  const Operand* stats = nullptr;    // NULL: none of its parameters has any
};
// Of an instruction that has both a gradient and a scale, as all that are emitted.
OptimizerOperands optimizer_operands(const Instr& instr);
// What a transfer sends, or, on its receiving end, gets.
const Operand& moved_operand(const Instr& instr);

// Of the states of an update that of a slot, which name and dtype tell together: two groups of the optimizer
// may name slots alike that differ in dtype. NULL: there is none.
const Operand* state_of_slot(std::span<const Operand> states, std::string_view name, Dtype dtype);

// A parameter or a state slot: what checkpoints hold.
struct TensorInfo {
  std::string name;  // "wte.weight", "wte.weight/optimizer/adamw.exp_avg"
  // The tensor local to a rank. Cut (depth > 0): only its buffer counts, which holds a part of the layout.
  Operand operand;
  Dims dims;  // global
  Placement placement;
  Init init;
  uint32_t layout = 0;  // of Program::layouts
  uint32_t leaf = 0;    // of the layout
  size_t depth = 0;     // how many of the layout's axes cut it; 0: a rank holds all of it
  bool copy = false;    // another stage of the pipeline owns it
};

// Parameters one behind the other: what is reduced, updated and gathered as one. Offsets count elements.
struct FlatLayout {
  struct Leaf {
    uint32_t param = 0;  // of Program::params
    int64_t first = 0, count = 0;
    int group = 0;  // of the optimizer
    bool operator==(const Leaf&) const = default;
  };
  std::vector<Leaf> leaves;
  int64_t elements = 0;
  int level = 0;              // of Storage
  std::vector<AxisId> axes;   // that cut it, major first; empty: every rank holds all of it
  size_t param_depth = 0;     // the first so many of them cut the parameters, all of them what is updated
  std::vector<int64_t> cuts;  // member i along `axes` updates [cuts[i], cuts[i + 1])

  size_t members() const { return cuts.size() - 1; }
  size_t depth() const { return axes.size(); }
  bool operator==(const FlatLayout&) const = default;
};

// The axes that cut it at depths [outer, inner).
std::vector<AxisId> axes_between(const FlatLayout& layout, size_t outer, size_t inner);

// A range of a layout's elements.
struct FlatPart {
  int64_t first = 0, count = 0;
};
// What a member holds of what only the first `depth` axes cut.
FlatPart part_at(const Mesh& mesh, const FlatLayout& layout, size_t depth, size_t member);
int64_t most_at(const Mesh& mesh, const FlatLayout& layout, size_t depth);  // of any member

// What of a leaf is in a part, as element offsets: within the leaf, and within the part.
struct LeafPart {
  int64_t first = 0, count = 0, at = 0;
};
LeafPart leaf_in(const FlatLayout::Leaf& leaf, const FlatPart& part);

// Entries of a parameter in the vector of squared norms: one, or one for each chunk (`chunk` > 0), as in
// exact mode, which adds up the norms of such chunks in a fixed order.
constexpr int64_t kExactGranule = 4096;
inline int64_t norm_entries(const FlatLayout::Leaf& leaf, int64_t chunk) {
  return chunk == 0 ? 1 : (leaf.count + chunk - 1) / chunk;
}

// What a lane may have in flight: where more would be, a transfer waits for the oldest before it starts. One
// may always be, of whatever size. The block that a ring passes on is three transfers.
struct LaneWindow {
  uint32_t transfers = 3;
  uint64_t bytes = uint64_t{1} << 30;
  // Whether so many with so many bytes may be in flight together.
  bool admits(size_t count, uint64_t held) const {
    return count <= 1 || (count <= transfers && held <= bytes);
  }
  bool operator==(const LaneWindow&) const = default;
};
// What a transfer counts for in a window: the larger of what it reads and what it writes.
uint64_t bytes_in_flight(const Instr& instr);

struct Program {
  std::string name;  // "train", "eval", "logits"
  Mesh mesh;
  int64_t microbatches = 1;
  std::vector<std::string> lanes;  // 0: compute; then one per mesh axis that communicates
  LaneWindow window;               // of each of these
  std::vector<Buffer> buffers;
  std::vector<Instr> instrs;
  std::vector<TensorInfo> params;
  std::vector<TensorInfo> states;
  std::vector<std::map<std::string, Operand>> inputs;  // per microbatch: "tokens", "targets", ...
  std::vector<AxisId> batch_axes;                      // that shard the samples, major first
  std::vector<AxisId> seq_axes;                        // that shard each sample's tokens, major first
  std::map<std::string, Operand> outputs;              // "loss", "count", "norm", "scale", "logits"
  std::vector<FlatLayout> layouts;
  // The class of ranks that run this: those with coordinate `class_index` on this axis. kNone: all.
  AxisId pipeline_axis = kNone;
  int64_t class_index = 0;
  std::array<uint64_t, kNumSpaces> space_bytes{};
  uint64_t kernel_private_bytes = 0;  // what kernels declared to keep for themselves
  double flops = 0;                   // of one rank and step
};

// Which of the layout's members a rank is.
size_t member_of(const Program& program, const FlatLayout& layout, int64_t rank);
// What it has of what only the first `depth` axes cut.
FlatPart part_of(const Program& program, const FlatLayout& layout, size_t depth, int64_t rank);
// A transfer that gathers or scatters a bucket over some axes behind one another: from which depth to which.
// Nothing: it runs over other axes.
struct Depths {
  size_t outer = 0, inner = 0;
};
std::optional<Depths> depths_of(const FlatLayout& layout, const std::vector<AxisId>& axes);
// How many elements each of its members has.
std::vector<int64_t> shares_of(const Mesh& mesh, const FlatLayout& layout, const Depths& depths,
                               size_t member);
// What a rank holds of a parameter or state: elements [first, first + count) of its local tensor, and where.
struct Held {
  int64_t first = 0, count = 0;
  BufferId buffer = kNone;
  uint64_t offset = 0;  // within the buffer
};
Held held_by(const Program& program, const TensorInfo& tensor, int64_t rank);

// An operand of a kernel by its name in the op table (graph/op_table.h), which must have the kind and the
// name.
const Operand& input(const Instr& instr, std::string_view name);
const Operand& output(const Instr& instr, std::string_view name);
Operand& input(Instr& instr, std::string_view name);
Operand& output(Instr& instr, std::string_view name);
// NULL: the kind has no row in the op table, or the row no input of that name.
const Operand* find_input(const Instr& instr, std::string_view name);
// How large a letter of the row's dims is, "k.." as the product of its dims; none: no operand has it, or the
// kind has no row.
std::optional<int64_t> size_of_letter(const Instr& instr, std::string_view letter);

struct PrintOptions {
  bool fold = true;  // show the first microbatch only, the others alike
};
std::string text(const Program& program, const PrintOptions& options);
// SHA-256, in hex, of all that ranks of a class must agree on: what operands and buffers are called is no
// part of it, but an optimizer's slots, which are found by their names.
std::string program_hash(const Program& program);

// Happens-before over a program: the rule of starts. A rank has one stream of work, its list. A kernel is
// complete before whatever is listed behind it starts; a transfer starts behind all that is listed before it
// and goes on beside what is listed behind, until something waits for it, or for a later one of its lane:
// then it is complete for all that is listed from there on. What nobody waits for ends with the step.
class Order {
 public:
  explicit Order(const Program& program);
  // True if `a` is complete before `b` starts.
  bool before(InstrId a, InstrId b) const { return behind(a) <= b; }
  // The first instruction that starts behind its end; as many as there are instructions: none does.
  InstrId behind(InstrId id) const {
    TENON_ASSERT(id < behind_.size());
    return behind_[id];
  }

 private:
  std::vector<InstrId> behind_;
};

}  // namespace tenon
