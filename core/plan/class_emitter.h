// Emits the program of one class of ranks, a row at a time. What is not of one class (transfers between
// stages, the norm, tied parameters) is emit()'s, through the functions below.
#pragma once

#include <unordered_map>

#include "plan/builder.h"
#include "plan/emit.h"
#include "plan/layout.h"
#include "plan/stages.h"

namespace tenon {

// What all classes of a program share; borrowed.
struct EmitContext {
  const JointGraph& joint;
  const Mesh& mesh;
  ProgramKind kind;
  const EmitOptions& options;
  const OptimizerPlan& optimizer;
  const ParamPlan& params;
  const StagePlan& stages;
  const Rows& rows;
  bool tree;                  // sums over ranks are added here, in the fixed tree
  int64_t work_share;         // ranks over which an op's work is spread
  std::vector<double> flops;  // of each op, over all ranks
};

class ClassEmitter {
 public:
  ClassEmitter(const EmitContext& context, int index);

  // Parameters, states and inputs.
  Status open();
  // The ops of one row. `made` is called with each value that another stage reads.
  Status run(const Row& row, const std::function<void(ValueId)>& made);

  // -- for emit() --
  ProgramBuilder& builder() { return builder_; }
  int index() const { return index_; }
  // Where a value of a microbatch is, and where one that comes from another class will be.
  const Operand& at(ValueId id, int microbatch) const;
  Result<Operand> expect(ValueId id, int microbatch);
  // A value made once per step, or folded over the microbatches.
  std::optional<Operand> folded(ValueId id) const;
  Status emit_step_op(const Op& op);  // collectives of phase step
  // Gradients that this class has completed but that another class's copies must join first.
  const std::vector<Bucket>& buckets() const { return context_.params.buckets[static_cast<size_t>(index_)]; }
  Operand gradient(size_t bucket) const { return grads_[bucket]; }
  void reduce(size_t bucket);
  void set_gradient(size_t bucket, const Operand& grad) { grads_[bucket] = grad; }
  // Sums of squares of all owned gradients, one range of the vector per set of norm axes.
  Operand norms();
  void update(size_t bucket, const Operand& scale);
  // What rests in Space::param of a bucket: all of it, or this rank's part.
  const Operand& param_storage(size_t bucket) const { return param_storage_[bucket]; }

 private:
  struct Live {
    Operand operand;
    int uses = 0;  // reads left
  };
  using Key = uint64_t;  // microbatch, value
  static Key key(ValueId id, int microbatch) { return static_cast<uint64_t>(microbatch) << 32 | id; }

  Result<Operand> local_operand(ValueId id) const;
  Status place_params();
  void place_states(size_t bucket);
  Status place_inputs();
  void count_uses();
  bool mine(int stage) const { return context_.rows.owner[static_cast<size_t>(stage)] == index_; }

  Result<Operand> read(ValueId id);
  Operand gathered(size_t bucket);
  void prefetch(size_t bucket);
  void release(ValueId id);
  Status emit_op(OpId id);
  Status emit_kernel(const Op& op);
  Status emit_collective(const Op& op);
  Status bind_output(const Op& op, size_t k, Instr& instr);
  bool can_take_over(ValueId id) const;
  Status bind_leaf(ValueId id, Instr& instr);
  void completed(size_t bucket);
  Operand fold(std::vector<std::pair<int, Operand>>& stack, Operand now);
  bool per_microbatch(size_t bucket) const;
  void emit_transfer(const Op& op, const Operand& in, const Operand& out);
  Operand shard_of(size_t bucket, const std::string& name, Dtype dtype);
  Operand reduce_to_shard(size_t bucket, const Operand& whole, Phase phase);

  const EmitContext& context_;
  const Graph& graph_;
  const int index_;
  ProgramBuilder builder_;
  Program& program_;
  std::unordered_map<Key, Live> live_;
  std::vector<int> uses_;                                  // per value: reads by this class in one microbatch
  std::map<ValueId, std::pair<size_t, size_t>> param_at_;  // bucket, leaf
  std::map<ValueId, std::pair<size_t, size_t>> leaf_at_;   // value of a gradient's chain -> bucket, leaf
  std::vector<Operand> param_storage_;                     // per bucket
  std::map<size_t, std::vector<Operand>> states_;          // per bucket that is updated here: its slots
  std::vector<std::optional<Operand>> gathered_;           // per bucket, within a row
  std::map<std::pair<int, int>, std::vector<size_t>> gather_order_;  // (kind, stage): buckets by first use
  std::vector<Operand> grads_;                                       // per bucket: complete
  struct Filling {
    Operand memory;
    std::vector<bool> written;  // per leaf
    int left = 0;               // contributions to come
  };
  std::map<std::pair<size_t, int>, Filling> filling_;        // (bucket, microbatch or -1)
  std::vector<int> contributions_;                           // per bucket and microbatch
  std::vector<int> done_;                                    // per bucket: microbatches complete
  std::vector<std::vector<std::pair<int, Operand>>> folds_;  // per bucket
  std::map<ValueId, std::vector<std::pair<int, Operand>>> scalars_;
  std::map<ValueId, Operand> step_values_;
  const Row* row_ = nullptr;  // being emitted
};

}  // namespace tenon
