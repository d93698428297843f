// The update rule: a plugin's states, one for each optimizer group.
#pragma once

#include "rank_memory.h"
#include "run/device.h"
#include "run/plugin_set.h"

namespace tenon::mutants {

class Optimizer {
 public:
  // `use` is borrowed.
  explicit Optimizer(const OptimizerUse& use);

  size_t groups() const { return states_.size(); }
  const std::vector<SlotDeclaration>& slots(size_t group) const { return slots_[group]; }
  uint64_t stats(size_t group) const { return stats_[group]; }
  // `measures`: only writes the statistics of the pieces.
  void step(size_t group, bool measures, std::vector<tenon_update>& pieces,
            const tenon_step_scalars& scalars) const;

 private:
  const OptimizerUse& use_;
  std::vector<Handle<tenon_optimizer_state>> states_;
  std::vector<std::vector<SlotDeclaration>> slots_;
  std::vector<uint64_t> stats_;
};

}  // namespace tenon::mutants
