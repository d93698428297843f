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
    slots_.push_back(std::move(declared->slots));
  }
}

void Optimizer::step(size_t group, std::vector<tenon_update>& pieces,
                     const tenon_step_scalars& scalars) const {
  std::vector<tenon_update*> pointers;
  for (tenon_update& piece : pieces) pointers.push_back(&piece);
  tenon_error error = empty_abi_error();
  if (use_.table->step(states_[group].get(), &kStream, pointers.data(),
                       static_cast<uint32_t>(pointers.size()), &scalars, &error) < 0)
    throw Fault(error.message);
}

}  // namespace tenon::mutants
