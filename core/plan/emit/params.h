// The parameters and optimizer states of one class: where they rest, how a row reads those that rest in
// parts, and their update.
#pragma once

#include <map>
#include <span>

#include "plan/emit/scope.h"

namespace tenon {

class Gradients;
using Statistics = std::map<size_t, Operand>;

class Params {
 public:
  explicit Params(Scope& scope) : scope_(scope) {}

  Status open();

  // Nothing: the value is not a parameter of this class.
  Result<std::optional<Operand>> read(ValueId id, const Row& row);
  // Rows that run now, in turns. Buckets that rest in parts are gathered in the order of a row's ops. What
  // rows before have gathered is dropped: but for the bucket that they read last, if one of these needs it at
  // once, as a backward row does behind its forward row.
  void enter(std::span<const Row> rows);

  // What rests in Space::param of a bucket: all of it, or this rank's part.
  const Operand& storage(size_t bucket) const { return storage_[bucket]; }
  // Of a bucket that is updated here, the part that this rank updates.
  const Operand& updated(size_t bucket);
  // What the optimizer wants to know of whole parameters before it updates them, by bucket.
  Statistics statistics(const Gradients& gradients, const Operand& scale);
  // `stats`: NULL, the bucket has none.
  void update(size_t bucket, const Operand& grad, const Operand& scale, const Operand* stats);

 private:
  Status place(size_t bucket);
  void place_states(size_t bucket);
  const std::vector<size_t>& order_of(const Row& row);
  Operand gathered(size_t bucket, const Row& row);
  void prefetch(size_t bucket);

  Scope& scope_;
  std::map<ValueId, LeafPlace> at_;
  std::vector<Operand> storage_;                   // per bucket
  std::map<size_t, std::vector<Operand>> states_;  // per bucket that is updated here: its slots
  std::map<size_t, Operand> parts_;                // per bucket of which a part is updated here: that
  std::vector<std::optional<Operand>> gathered_;   // per bucket
  size_t read_last_ = 0;                           // of the buckets that rest in parts
  std::map<std::pair<RowKind, int>, std::vector<size_t>> in_order_;  // (kind, stage): buckets by first use
};

}  // namespace tenon
