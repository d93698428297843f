// A rank's plugins with a switch: while idle, kernels, updates and transfers return at once, so that what is
// left of a step is the executor's own.
#pragma once

#include "run/plugin_set.h"

namespace tenon::bench {

class IdleSwitch {
 public:
  // Replaces the tables in `plugins`; must outlive all that is made of them.
  explicit IdleSwitch(PluginSet& plugins);
  IdleSwitch(const IdleSwitch&) = delete;
  IdleSwitch& operator=(const IdleSwitch&) = delete;
  // Not while a step runs.
  void set(bool idle);

 private:
  std::vector<const tenon_kernels*> real_kernels_;
  const tenon_comm* real_comm_;
  const tenon_optimizer* real_optimizer_;
  std::vector<tenon_kernels> kernels_;
  tenon_comm comm_;
  tenon_optimizer optimizer_;
};

}  // namespace tenon::bench
