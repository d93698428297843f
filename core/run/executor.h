// Runs a program on a rank: wait, call a plugin, record. Everything is prepared beforehand; a step
// allocates nothing and decides nothing.
#pragma once

#include <atomic>

#include "plan/kernel_desc.h"
#include "run/device.h"

namespace tenon {

class Executor {
 public:
  // Prepares kernels, transfers and updates. The device's memory must be allocated; both are borrowed.
  // Collective. `kernels` with equal keys are shared within the program.
  static Result<std::unique_ptr<Executor>> prepare(const Program& program, RankDevice& device, bool exact);

  // One step. `lr` and `step` reach the optimizer; inputs must be in place. Errors name the instruction.
  Status run(int64_t step, double lr);

  const Program& program() const { return program_; }
  // The instruction being executed, for reports about a step that hangs. [thread-safe]
  InstrId now() const { return now_.load(std::memory_order_relaxed); }

  // Fills the arena with a pattern; later, the highest byte that no longer holds it: the true peak.
  void poison_arena();
  uint64_t arena_high_water() const;

 private:
  struct Update {
    std::vector<tenon_update> pieces;
    std::vector<tenon_update*> pointers;
    std::vector<std::vector<void*>> slots;
    const double* scale = nullptr;
    tenon_optimizer_state* state = nullptr;
  };
  struct Record {
    tenon_kernel* kernel = nullptr;
    tenon_comm_plan* transfer = nullptr;
    int32_t update = -1;
    uint32_t first_pointer = 0;
    uint32_t first_wait = 0, num_waits = 0;
  };

  Executor(const Program& program, RankDevice& device) : program_(program), device_(device) {}
  Status prepare_instr(InstrId id, bool exact);
  Status prepare_kernel(InstrId id, bool exact, Record& record);
  Status prepare_transfer(const Instr& instr, Record& record);
  void prepare_update(const Instr& instr, Record& record);
  int64_t coordinate_shift(const Instr& instr) const;
  Status execute(const Record& record, const tenon_step_scalars& scalars);
  Status wait(InstrId id);
  Error located(tenon_code code, const tenon_error& error, InstrId id, const std::string& who) const;

  const Program& program_;
  RankDevice& device_;
  std::map<std::string, Handle<tenon_kernel>> kernels_;
  std::vector<Handle<tenon_comm_plan>> transfers_;
  std::vector<Update> updates_;
  std::vector<Record> records_;
  std::vector<void*> pointers_;
  std::vector<InstrId> waits_;
  std::vector<uint8_t> in_flight_;  // per instruction
  std::vector<InstrId> transfer_ids_;
  std::atomic<InstrId> now_{0};
};

}  // namespace tenon
