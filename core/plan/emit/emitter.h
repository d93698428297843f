// Emits the program of one class of ranks, a row at a time. What is not of one class (transfers between
// stages, the norm over all, tied parameters) is Emission's, through the functions below.
#pragma once

#include <functional>
#include <span>
#include <unordered_map>

#include "plan/emit/gradients.h"
#include "plan/emit/params.h"

namespace tenon {

class Emitter {
 public:
  Emitter(const EmitContext& context, int index);
  Emitter(const Emitter&) = delete;  // its parts share its scope
  Emitter& operator=(const Emitter&) = delete;

  // Parameters, states and inputs.
  Status open();
  // The ops of a row, or of rows that run interleaved. `made` is called with each value that another stage
  // reads; its microbatch is the builder's.
  using Made = std::function<Status(ValueId)>;
  Status run(std::span<const Row> rows, const Made& made);

  // -- for Emission --
  Params& params() { return params_; }
  Gradients& gradients() { return gradients_; }
  ProgramBuilder& builder() { return scope_.builder; }
  const std::vector<Bucket>& buckets() const { return scope_.buckets(); }
  int index() const { return scope_.index; }
  Result<Operand> local(ValueId id) const { return scope_.local(id); }
  // Where a value of a microbatch is, and where one that comes from another class will be.
  const Operand& at(ValueId id, int microbatch) const;
  Result<Operand> expect(ValueId id, int microbatch);
  // A value made once per step, or folded over the microbatches.
  std::optional<Operand> folded(ValueId id) const;
  Status emit_step_op(const Op& op);  // collectives of phase step

 private:
  struct Live {
    Operand operand;
    int uses = 0;  // reads left
  };
  using Key = uint64_t;  // microbatch, value
  static Key key(ValueId id, int microbatch) { return static_cast<uint64_t>(microbatch) << 32 | id; }
  Key key(ValueId id) const { return key(id, scope_.builder.microbatch()); }

  Status place_inputs();
  void count_uses();

  Result<Operand> read(ValueId id, const Row& row);
  void release(ValueId id);
  Status emit_op(const Op& op, const Row& row);
  Status emit_kernel(const Op& op, const Row& row);
  Status emit_collective(const Op& op, const Row& row);
  Status bind_output(const Op& op, size_t k, Instr& instr);
  bool can_take_over(ValueId id) const;
  std::vector<Instr> cut_behind_transfers(size_t first);
  Status settle_output(ValueId id, const Made& made);

  Scope scope_;
  Params params_;
  Gradients gradients_;
  std::unordered_map<Key, Live> live_;
  std::vector<int> uses_;  // per value: reads by this class in one microbatch
  std::map<ValueId, Fold> folds_;
  std::map<ValueId, Operand> step_values_;
};

}  // namespace tenon
