// The compiler: recipe and mesh in, verified step program out. Pure: the same on a laptop as on the
// cluster.
#pragma once

#include <set>

#include "graph/joint.h"
#include "plan/emit/pass_host.h"
#include "plan/program/kernel_desc.h"
#include "plan/program/program.h"
#include "plan/rows/rows.h"
#include "plan/verify/verify.h"

namespace tenon {

struct KernelNeeds {
  uint64_t workspace_bytes = 0;
  uint64_t private_bytes = 0;
  bool exact = false;
  std::string plugin = {};  // that says so
  bool operator==(const KernelNeeds&) const = default;
};

// How the optimizer's state of a group may be cut.
struct OptimizerSlots {
  std::vector<StateSlot> slots;
  bool elements = true;  // between any two elements; false: never inside a parameter
  int64_t stats = 0;     // of each parameter: OptimizerRule
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
  // Asks the kernels plugin that runs the kind; called once per distinct kernel.
  std::function<Result<KernelNeeds>(const tenon_kernel_desc&)> describe;
  std::set<std::string> overridden;  // kinds whose kernels are another plugin's than all others
  uint64_t bucket_bytes = 4u << 20;
  LaneWindow window;                    // of each lane of the programs
  int64_t most_ops = int64_t{1} << 22;  // of the forward pass, over all microbatches: a program is unrolled
};

// The programs of one kind.
struct Compiled {
  std::vector<Interface> classes;  // of all ranks
  std::vector<Program> programs;   // of the classes that were kept, in order
  VerifyReport report;
  std::shared_ptr<const Reference> reference = {};  // what they were verified against

  // The program that a rank runs, which must be of a class that was kept.
  const Program& of(int64_t rank) const;
};

// Makes the programs of each kind of a recipe. Errors: R (model), P (plan), S (schedule), V (verification),
// A (a kernel that the plugin lacks).
class Compiler {
 public:
  // What all kinds have in common. Recipe and options are borrowed.
  static Result<Compiler> open(const Recipe& recipe, const CompileOptions& options);

  // All classes, proved and kept.
  Result<Compiled> all(ProgramKind kind) const;
  // As one rank sees them: its own class is proved and kept, of the others it has the interfaces.
  Result<Compiled> of_rank(int64_t rank, ProgramKind kind) const;
  // All proved, and none is kept: `visit` sees the program of one class after another, before what concerns
  // several classes is proved.
  Result<Compiled> each(ProgramKind kind, const std::function<void(const Program&)>& visit) const;

 private:
  struct Draft;
  // What is done with the program of each class.
  struct Portion {
    std::function<bool(const Program&)> proved;  // of the others only the interface is wanted
    std::function<void(Program&&)> take;         // of those that were proved
  };
  explicit Compiler(std::shared_ptr<const Draft> draft);
  Result<Compiled> portion(ProgramKind kind, const Portion& portion) const;
  Result<Compiled> kept(ProgramKind kind, const std::function<bool(const Program&)>& wanted) const;
  Result<Compiled> programs_of(ProgramKind kind, const JointGraph& joint, const Rows& rows,
                               const Portion& portion) const;

  std::shared_ptr<const Draft> draft_;
};
// The programs of one kind, of all classes.
Result<Compiled> compile(const Recipe& recipe, ProgramKind kind, const CompileOptions& options);

// What compile() makes of a recipe on the way to programs of training.
Graphs graphs_of(const Recipe& recipe, const CompileOptions& options);

// Which optimizer group a parameter belongs to: 0, or 1 + the index of the first group that matches.
int group_of(const Recipe& recipe, const std::string& param);

// SHA-256, in hex, of what all ranks must agree on: the interfaces of all classes; and these together with
// all programs, given their hashes (program.h).
std::string interface_hash(const Compiled& compiled);
std::string plan_hash(const Compiled& compiled, const std::vector<std::string>& programs);

}  // namespace tenon
