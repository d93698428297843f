#include "optimizer.h"

#include "kernels.h"

namespace tenon::mutants {
Optimizer::Optimizer(const OptimizerUse& use) : use_(use) {
  for (const auto& [options, pointer] : use.groups) {
    tenon_optimizer_state* state = nullptr;
    tenon_error error = empty_abi_error();
    tenon_optimizer_info info{};
    info.struct_size = sizeof info;
    if (use.table->open(options.data(), options.size(), &state, &error) < 0 ||
        use.table->describe(state, &info, &error) < 0)
      throw Refused(error.message);
    states_.emplace_back(state, use.table->close);
    slots_.emplace_back(info.slots, info.slots + info.num_slots);
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
