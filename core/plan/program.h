// The step program: one flat list of instructions per class of ranks, on named lanes, over planned
// memory. It is what gets printed, verified, hashed and executed.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/recipe.h"

namespace tenon {

// Where a buffer lives. Each space is one contiguous region; params and states outlive a step and are
// laid out alike in every program of a run, arena bytes are reused within a step.
enum class Space : uint8_t { param, state, input, arena };
constexpr size_t kNumSpaces = 4;
const char* name_of(Space space);
constexpr uint64_t kAlignment = 64;
inline uint64_t aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

struct Buffer {
  std::string name;
  Space space = Space::arena;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // within its space
  bool gaps = false;    // holds aligned tensors with bytes between them that nobody means
};

using BufferId = uint32_t;
using InstrId = uint32_t;

// A tensor inside a buffer, local to a rank.
struct Operand {
  BufferId buffer = kNone;
  uint64_t offset = 0;  // within the buffer
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> dims;
  std::string name;

  int64_t elements() const;
  uint64_t bytes() const { return static_cast<uint64_t>(elements()) * static_cast<uint64_t>(size_of(dtype)); }
};

struct Instr {
  std::string kind;  // op kind, a collective, or "update"
  Phase phase = Phase::forward;
  int microbatch = -1;  // -1: once per step
  int layer = -1;
  uint32_t lane = 0;
  std::vector<Operand> in;
  std::vector<Operand> out;  // update: parameters, then their state slots, parameter by parameter
  Operand workspace;         // buffer kNone: none
  Attrs attrs;
  bool accumulate = false;
  int inplace = -1;
  std::vector<AxisId> axes;  // collectives
  Reduction reduction = Reduction::sum;
  int group = 0;               // update: optimizer group
  std::vector<InstrId> waits;  // earlier instructions on other lanes
};

// A parameter or a state slot: what checkpoints hold.
struct TensorInfo {
  std::string name;  // "wte.weight", "wte.weight/optimizer/adamw.exp_avg"
  Operand operand;
  Dims dims;  // global
  Placement placement;
  Init init;
  int contributions = 0;  // parameters: ops that add into its gradient in each microbatch
};

struct Program {
  std::string name;  // "train", "eval", "logits"
  Mesh mesh;
  int64_t microbatches = 1;
  std::vector<std::string> lanes;  // 0: compute; then one per mesh axis that communicates
  std::vector<Buffer> buffers;
  std::vector<Instr> instrs;
  std::vector<TensorInfo> params;
  std::vector<TensorInfo> states;
  std::vector<std::map<std::string, Operand>> inputs;  // per microbatch: "tokens", "targets", ...
  std::vector<AxisId> batch_axes;                      // that shard the samples, major first
  std::map<std::string, Operand> outputs;              // "loss", "count", "norm", "scale", "logits"
  std::array<uint64_t, kNumSpaces> space_bytes{};
  uint64_t kernel_private_bytes = 0;  // what kernels declared to keep for themselves
  double flops = 0;                   // of one rank and step
};

struct PrintOptions {
  bool fold = true;  // show the first microbatch only, the others alike
};
std::string text(const Program& program, const PrintOptions& options);
// Everything that all ranks must agree on, in a stable form: the input of the program hash.
std::string serialize(const Program& program);

// Happens-before over a program: lanes are FIFO, waits order across lanes.
class Order {
 public:
  explicit Order(const Program& program);
  // True if `a` is complete before `b` starts.
  bool before(InstrId a, InstrId b) const;
  // Position on its lane, counted from 1.
  uint32_t position(InstrId id) const { return position_[id]; }
  // How far lane `lane` is known to be complete when `id` starts.
  uint32_t known(InstrId id, uint32_t lane) const { return clock_[id * num_lanes_ + lane]; }

 private:
  uint32_t num_lanes_;
  std::vector<uint32_t> lane_, position_, clock_;
};

}  // namespace tenon
