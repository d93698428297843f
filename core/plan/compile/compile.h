// The compiler: recipe and mesh in, verified step program out. Pure: the same on a laptop as on the
// cluster.
#pragma once

#include "graph/joint.h"
#include "plan/emit/emit.h"
#include "plan/emit/pass_host.h"
#include "plan/program/kernel_desc.h"
#include "plan/program/program.h"
#include "plan/verify/verify.h"

namespace tenon {

struct KernelNeeds {
  uint64_t workspace_bytes = 0;
  uint64_t private_bytes = 0;
  bool exact = false;
};

// How the optimizer's state of a group may be cut.
struct OptimizerSlots {
  std::vector<StateSlot> slots;
  bool elements = true;  // between any two elements; false: never inside a parameter
};

struct ScheduleUse {
  std::string id;  // empty: none
  const tenon_schedule* table = nullptr;
  std::vector<tenon_option> options;  // borrowed
  const tenon_host* host = nullptr;
};

struct CompileOptions {
  Mesh mesh;  // resolved
  std::vector<PassUse> passes;
  ScheduleUse schedule;
  std::string optimizer;              // plugin id
  std::vector<OptimizerSlots> slots;  // 0: the common group; 1 + i: Recipe::groups[i]
  bool tree_order = true;
  // Asks the kernels plugin; called once per distinct kernel.
  std::function<Result<KernelNeeds>(const tenon_kernel_desc&)> describe;
  uint64_t bucket_bytes = 4u << 20;
  LaneWindow window;                    // of each lane of the programs
  int64_t most_ops = int64_t{1} << 22;  // of the forward pass, over all microbatches: a program is unrolled
};

// The programs of one kind: one for each class of ranks.
struct Compiled {
  std::vector<Program> programs;
  VerifyReport report;
  std::shared_ptr<const Reference> reference = {};  // what they were verified against

  // The program that a rank runs.
  const Program& of(int64_t rank) const;
};

// Errors: R (model), P (plan), S (schedule), V (verification), A (a kernel that the plugin lacks).
Result<Compiled> compile(const Recipe& recipe, ProgramKind kind, const CompileOptions& options);

// What compile() makes of a recipe on the way to programs of training.
Graphs graphs_of(const Recipe& recipe, const CompileOptions& options);

// Which optimizer group a parameter belongs to: 0, or 1 + the index of the first group that matches.
int group_of(const Recipe& recipe, const std::string& param);

// SHA-256 of the serialised programs, in hex: what all ranks must agree on.
std::string program_hash(const Compiled& compiled);

}  // namespace tenon
