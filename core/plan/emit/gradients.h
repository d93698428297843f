// The gradients of one class: buckets that fill as the ops of a row contribute to them, are folded over the
// microbatches and reduced over the ranks as soon as they are complete; and their norms.
#pragma once

#include <deque>
#include <map>

#include "plan/emit/scope.h"

namespace tenon {

// Adds what microbatches leave. Exact: a binary counter, which is the fixed tree; else one behind the other.
class Fold {
 public:
  // The sum so far, of which `now` is part.
  Operand add(ProgramBuilder& builder, Operand now, bool exact);
  const Operand& sum() const { return stack_.back().second; }

 private:
  std::vector<std::pair<int, Operand>> stack_;
};

class Gradients {
 public:
  explicit Gradients(Scope& scope);

  bool owns(ValueId id) const { return at_.contains(id); }
  // Memory of an output that is a contribution to a gradient.
  Status bind(ValueId id, Instr& instr);
  // The op with this output has been emitted. A gradient that is complete by it is reduced. One microbatch's,
  // in parts, is on its way then: what is to be done with it is done when the next one is complete, or in
  // settle(), so that work is beside the transfer.
  Status contributed(ValueId id);
  // Behind the last row, before anything below.
  Status settle();

  // Gradients that this class has completed, but that other classes' copies join before reduce(), too.
  const Operand& gradient(size_t bucket) const { return gradients_[bucket]; }
  void set_gradient(size_t bucket, const Operand& gradient) { gradients_[bucket] = gradient; }
  Status reduce(size_t bucket);
  // Sum of the squares of all owned gradients, one range of the vector per set of norm axes.
  Operand norms();

 private:
  struct Filling {
    Operand memory;
    std::vector<bool> written;  // per leaf
    int left = 0;               // contributions to come
  };
  // Of one microbatch, on its way to the part that this rank updates.
  struct Underway {
    size_t bucket;
    Operand held;
    size_t depth;           // of the layout, that it has been reduced to
    int stage, microbatch;  // of the row that completed it
  };

  void follow(size_t bucket, size_t leaf);
  // Of the memory that contributions are made in.
  Result<int64_t> elements_of(size_t bucket) const;
  bool per_microbatch(size_t bucket) const;
  std::pair<size_t, int> filling_key(size_t bucket) const;
  Operand reduce_to_part(size_t bucket, const Operand& whole);
  void go_on(Underway& one);
  Status go_on_with(size_t most);
  Status fold(size_t bucket, Operand now);
  Operand scatter(size_t bucket, const Operand& held, size_t outer, size_t inner, Phase phase);
  Status reduce_in_tree(size_t bucket);
  Operand own_part(size_t bucket, const Operand& held);

  Scope& scope_;
  std::map<ValueId, LeafPlace> at_;                    // values of a gradient's chain of additions
  std::map<std::pair<size_t, int>, Filling> filling_;  // (bucket, microbatch or kWholeStep)
  std::deque<Underway> underway_;                      // oldest first
  std::vector<int> contributions_;                     // per bucket and microbatch
  std::vector<int> done_;                              // per bucket: microbatches complete
  std::vector<Fold> folds_;                            // per bucket
  std::vector<Operand> gradients_;                     // per bucket: complete
};

}  // namespace tenon
