#include "optimizer.h"

#include "kernels.h"

namespace tenon::mutants {
Optimizer::Optimizer(const OptimizerUse& use) : use_(use) {
  for (const OptimizerUse::Group& group : use.groups) {
    auto state = open_optimizer(use, group);
    if (!state.ok()) throw Refused(state.error().text());
    auto declared = describe(use, state->get());
    if (!declared.ok()) throw Refused(declared.error().text());
    states_.push_back(std::move(*state));
    stats_.push_back(declared->num_stats);
    slots_.push_back(std::move(declared->slots));
  }
}

void Optimizer::step(size_t group, bool measures, std::vector<tenon_update>& pieces,
                     const tenon_step_scalars& scalars) const {
  std::vector<const tenon_update*> pointers;
  for (tenon_update& piece : pieces) pointers.push_back(&piece);
  tenon_error error = empty_abi_error();
  const auto call = measures ? use_.table->stats : use_.table->step;
  if (call(states_[group].get(), &kStream, pointers.data(), static_cast<uint32_t>(pointers.size()), &scalars,
           &error) < 0)
    throw Fault(error.message);
}

}  // namespace tenon::mutants
