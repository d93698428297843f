#include "bench/idle.h"

namespace tenon::bench {
namespace {

tenon_code enqueue(tenon_kernel*, const tenon_stream*, void* const*, tenon_error*) { return TENON_OK; }
tenon_code start(tenon_comm_plan*, const tenon_stream*, tenon_error*) { return TENON_OK; }
tenon_code wait_host(tenon_comm_plan*, int64_t, tenon_error*) { return TENON_OK; }
tenon_code update(tenon_optimizer_state*, const tenon_stream*, const tenon_update* const*, uint32_t,
                  const tenon_step_scalars*, tenon_error*) {
  return TENON_OK;
}

}  // namespace

IdleSwitch::IdleSwitch(PluginSet& plugins)
    : real_comm_(plugins.comm.table),
      real_optimizer_(plugins.optimizer.table),
      comm_(*real_comm_),
      optimizer_(*real_optimizer_) {
  for (const auto& plugin : plugins.kernels.plugins) {
    real_kernels_.push_back(plugin.table);
    kernels_.push_back(*plugin.table);
  }
  for (size_t i = 0; i < kernels_.size(); ++i) plugins.kernels.plugins[i].table = &kernels_[i];
  plugins.comm.table = &comm_;
  plugins.optimizer.table = &optimizer_;
}

void IdleSwitch::set(bool idle) {
  for (size_t i = 0; i < kernels_.size(); ++i)
    kernels_[i].enqueue = idle ? enqueue : real_kernels_[i]->enqueue;
  comm_.start = idle ? start : real_comm_->start;
  comm_.wait_host = idle ? wait_host : real_comm_->wait_host;
  optimizer_.step = idle ? update : real_optimizer_->step;
}

}  // namespace tenon::bench
