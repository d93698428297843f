// The parameters and optimizer states of one class: where they rest, how a row reads those that rest in
// parts, and their update.
#pragma once

#include <map>

#include "plan/class_scope.h"

namespace tenon {

class ClassParams {
 public:
  explicit ClassParams(ClassScope& scope) : scope_(scope) {}

  Status open();

  // Nothing: the value is not a parameter of this class.
  Result<std::optional<Operand>> read(ValueId id, const Row& row);
  // Buckets that rest in parts are gathered in the order of the row's ops, and dropped at its end: but for
  // the one read last, which a backward row reads first where it follows its forward row.
  void enter(const Row& row);
  void leave();

  // What rests in Space::param of a bucket: all of it, or this rank's part.
  const Operand& storage(size_t bucket) const { return storage_[bucket]; }
  void update(size_t bucket, const Operand& grad, const Operand& scale);

 private:
  Status place(size_t bucket);
  void place_states(size_t bucket);
  Operand gathered(size_t bucket, const Row& row);
  void prefetch(size_t bucket);

  struct Place {
    size_t bucket, leaf;
  };
  ClassScope& scope_;
  std::map<ValueId, Place> at_;
  std::vector<Operand> storage_;                   // per bucket
  std::map<size_t, std::vector<Operand>> states_;  // per bucket that is updated here: its slots
  std::vector<std::optional<Operand>> gathered_;   // per bucket
  size_t read_last_ = 0;                           // of the buckets that rest in parts
  std::map<std::pair<RowKind, int>, std::vector<size_t>> in_order_;  // (kind, stage): buckets by first use
};

}  // namespace tenon
