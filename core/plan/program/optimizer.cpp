#include "plan/program/optimizer.h"

namespace tenon {

std::string state_name(const std::string& param, const OptimizerPlan& optimizer, const StateSlot& slot) {
  return param + "/" + optimizer.plugin + "." + slot.name;
}

}  // namespace tenon
