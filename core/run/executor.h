// Runs a program on a rank: wait, call a plugin, record. Everything is prepared beforehand; a step
// allocates nothing and decides nothing.
#pragma once

#include <atomic>
#include <deque>

#include "plan/program/kernel_desc.h"
#include "run/device.h"
#include "run/output_watch.h"
#include "run/trace.h"
#include "run/update_watch.h"

namespace tenon {

class Executor {
 public:
  // Prepares kernels, transfers and updates. The device's memory must be allocated; both are borrowed.
  // Collective. `kernels` with equal keys are shared within the program.
  static Result<std::unique_ptr<Executor>> prepare(const Program& program, RankDevice& device, bool exact);

  // How transfers are waited for: where the plan says, so that work goes on beside them; or each at once,
  // which shows what they cost. What stages send to each other is waited for as planned in any case, for the
  // other end may need work of this rank first. The results are the same.
  enum class Waits : uint8_t { planned, at_once };
  // One step. `lr` and `step` reach the optimizer; inputs must be in place. Errors name the instruction.
  // W011 where the device is aborted. `times`, where given, has an entry for each instruction, which is
  // written.
  Status run(int64_t step, double lr, Waits waits = Waits::planned, InstrTimes* times = nullptr);
  // The same, and looks at what each kernel writes and each update changes (output_watch.h, update_watch.h).
  // Error N003 where a kernel leaves an output as it is.
  Status run_watched(int64_t step, double lr, Waits waits = Waits::planned, InstrTimes* times = nullptr);
  // What was seen of the updates then.
  struct Seen {
    Status found;  // error N002, which names the plugin; a loss that is no number explains it better
    bool must_move = false;  // of this rank, see UpdateWatch
    bool moved = false;
  };
  Seen seen(int64_t step) const;
  // Seconds in which the last run() did nothing but wait for transfers, or start them.
  double transfer_seconds() const { return transfer_seconds_; }

  const Program& program() const { return program_; }
  // The instruction being executed, for reports about a step that hangs. [thread-safe]
  InstrId now() const { return now_.load(std::memory_order_relaxed); }

  // Fills the arena with a pattern; later, the highest byte that no longer holds it: the true peak.
  void poison_arena();
  uint64_t arena_high_water() const;

 private:
  // The pieces of one optimizer group in one bucket.
  struct Update {
    std::vector<tenon_update> pieces;
    std::vector<const tenon_update*> pointers;
    std::vector<std::vector<void*>> slots;
    const double* scale = nullptr;
    tenon_optimizer_state* state = nullptr;
    const OptimizerDeclaration* declaration = nullptr;
    UpdateWatch watch;
    bool measures = false;  // the optimizer's `stats`, not its `step`
  };
  struct Call {
    tenon_kernel* kernel = nullptr;
    const Plugged<tenon_kernels>* plugin = nullptr;
    uint32_t first_pointer = 0;
    uint32_t first_output = 0, num_outputs = 0;  // that are watched
  };
  // Calls of kernels, then updates; or one transfer.
  struct Record {
    tenon_comm_plan* transfer = nullptr;
    bool within_class = false;  // the transfer is among ranks that run this program
    uint32_t first_call = 0, num_calls = 0;
    uint32_t first_update = 0, num_updates = 0;
    uint32_t first_wait = 0, num_waits = 0;
  };

  // Of a whole parameter, and where this rank's block of it begins: what updates point to.
  struct ParamShape {
    std::vector<int64_t> dims, starts;
  };

  Executor(const Program& program, RankDevice& device, bool exact)
      : program_(program), device_(device), exact_(exact) {}
  Status prepare_all();
  Status prepare_instr(InstrId id);
  Status add_calls(InstrId id);
  Status add_call(InstrId id, const Instr& instr);
  Status prepare_transfer(const Instr& instr, Record& record);
  Status add_updates(const Instr& instr);
  Status add_piece(const Instr& instr, const FlatLayout::Leaf& leaf, const LeafPart& part, Update& update);
  ParamShape shape_of(const TensorInfo& param) const;
  int64_t offset(const Instr& instr) const;
  size_t member(const FlatLayout& layout) const;
  template <bool kTraced>
  Status run_all(const tenon_step_scalars& scalars, Waits waits);
  Status execute(InstrId id, const tenon_step_scalars& scalars);
  Status call_kernel(InstrId id, const Call& call, int64_t step, tenon_error& error);
  tenon_code update(Update& one, const tenon_step_scalars& scalars, tenon_error& error);
  tenon_code update_watched(Update& one, const tenon_step_scalars& scalars, tenon_error& error);
  Status wait(InstrId id);
  std::string place_of(InstrId id, const std::string& who) const;
  Error located(tenon_code code, const tenon_error& error, InstrId id, const std::string& who) const;
  Error aborted(InstrId id) const;

  const Program& program_;
  RankDevice& device_;
  const bool exact_;
  std::map<std::string, Handle<tenon_kernel>> kernels_;
  std::vector<Handle<tenon_comm_plan>> transfers_;
  std::vector<Update> updates_;
  std::deque<ParamShape> shapes_;
  std::vector<Call> calls_;
  std::vector<Record> records_;
  std::vector<void*> pointers_;
  std::vector<WatchedOutput> outputs_;
  std::vector<InstrId> waits_;
  struct Lane {
    std::vector<InstrId> transfers;    // in order
    size_t started = 0, complete = 0;  // of this step
  };
  std::vector<Lane> lanes_;
  std::atomic<InstrId> now_{0};
  double transfer_seconds_ = 0;
  InstrTimes* times_ = nullptr;  // of the step that runs
  bool watched_ = false;         // it is
  Status found_;                 // of its updates
};

}  // namespace tenon
