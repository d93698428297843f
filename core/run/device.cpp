#include "run/device.h"

#include <fmt/format.h>

#include <cstring>

#include "base/assert.h"

namespace tenon {
Result<Handle<tenon_optimizer_state>> open_optimizer(const OptimizerUse& use,
                                                     const OptimizerUse::Group& group) {
  const auto config = config_of<tenon_optimizer_config>(group.options, use.host);
  return open_with_options<tenon_optimizer_state>(
      use.id, group.pointer, use.table->close,
      [&](auto** o, auto* e) { return use.table->open(&config, o, e); });
}

Result<std::unique_ptr<RankDevice>> RankDevice::open(const PluginSet& plugins, RankId id, const Mesh& mesh,
                                                     const tenon_rendezvous* rendezvous, int64_t timeout_ns) {
  std::unique_ptr<RankDevice> out(new RankDevice(plugins, id, mesh));
  out->timeout_ns_ = timeout_ns;
  TENON_CHECK(out->open_kernels());
  TENON_CHECK(out->open_optimizers());
  if (id.world == 1) return out;
  const auto& comm = plugins.comm;
  auto config = config_of<tenon_comm_config>(comm);
  config.rank = static_cast<int32_t>(id.rank);
  config.world = static_cast<int32_t>(id.world);
  config.device = {static_cast<DLDeviceType>(plugins.kernels.base().table->device_type), 0};
  config.timeout_ns = timeout_ns;
  config.rendezvous = rendezvous;
  TENON_TRY(out->domain_,
            open_handle<tenon_comm_domain>(comm.id, comm.table->domain_close, [&](auto** o, auto* e) {
              return comm.table->domain_open(&config, o, e);
            }));
  return out;
}

Status RankDevice::open_kernels() {
  for (const auto& plugin : plugins_.kernels.plugins) {
    const auto config = config_of<tenon_kernels_config>(plugin);
    TENON_TRY(auto device, open_with_options<tenon_device>(
                               plugin.id, plugin.pointer, plugin.table->close,
                               [&](auto** o, auto* e) { return plugin.table->open(&config, o, e); }));
    kernels_.push_back(std::move(device));
  }
  return {};
}

KernelRunner RankDevice::runner_of(std::string_view kind) const {
  const size_t index = plugins_.kernels.index_of(kind);
  return {&plugins_.kernels.plugins[index], kernels_[index].get()};
}

Status RankDevice::open_optimizers() {
  const OptimizerUse& use = plugins_.optimizer;
  for (const OptimizerUse::Group& given : use.groups) {
    TENON_TRY(auto state, open_optimizer(use, given));
    TENON_TRY(auto declaration, describe(use, state.get()));
    declarations_.push_back(std::move(declaration));
    optimizers_.push_back(std::move(state));
  }
  return {};
}

Status RankDevice::allocate(const std::array<uint64_t, kNumSpaces>& bytes) {
  bytes_ = bytes;
  for (size_t i = 0; i < kNumSpaces; ++i) {
    const uint64_t size = std::max<uint64_t>(bytes[i], kAlignment);
    // Arena memory is what peers exchange; the other spaces are this rank's alone.
    const bool reachable = domain_ != nullptr && static_cast<Space>(i) == Space::arena;
    const auto& comm = plugins_.comm;
    auto opened = reachable
                      ? open_handle<void>(
                            comm.id, [this](void* p) { plugins_.comm.table->free(domain_.get(), p); },
                            [&](void** o, auto* e) { return comm.table->alloc(domain_.get(), size, o, e); })
                      : memory(size);
    if (!opened.ok()) return std::move(opened).error();
    if (reinterpret_cast<uintptr_t>(opened->get()) % kAlignment != 0) {
      return Error{"A005", fmt::format("memory that is not aligned to {} bytes", kAlignment),
                   (reachable ? comm.id : plugins_.kernels.base().id) + ", alloc",
                   "align it, as the header says", TENON_E_VERSION};
    }
    base_[i] = static_cast<char*>(opened->get());
    memory_.push_back(std::move(opened).value());
  }
  spoil_arena(this->bytes(Space::arena));
  return {};
}

void RankDevice::spoil_arena(uint64_t bytes) { std::memset(space(Space::arena), kNoNumber, bytes); }

Result<Handle<void>> RankDevice::memory(uint64_t bytes) {
  const auto& kernels = plugins_.kernels.base();
  tenon_device* const device = kernels_.front().get();
  return open_handle<void>(
      kernels.id, [this, device](void* p) { plugins_.kernels.base().table->free(device, p); },
      [&](void** o, auto* e) {
        return kernels.table->alloc(device, std::max<uint64_t>(bytes, kAlignment), o, e);
      });
}

char* RankDevice::address(const Program& program, const Operand& operand) const {
  TENON_ASSERT(operand.buffer < program.buffers.size());
  const Buffer& buffer = program.buffers[operand.buffer];
  TENON_ASSERT(operand.offset <= buffer.bytes);
  return base_[static_cast<size_t>(buffer.space)] + buffer.offset + operand.offset;
}

Result<tenon_comm_group*> RankDevice::group(const std::vector<AxisId>& axes) {
  const auto it = groups_.find(axes);
  if (it != groups_.end()) return it->second.get();
  const std::vector<int32_t> members = mesh_.group(id_.rank, axes);
  const auto& comm = plugins_.comm;
  TENON_TRY(auto group,
            open_handle<tenon_comm_group>(comm.id, comm.table->group_close, [&](auto** o, auto* e) {
              return comm.table->group_open(domain_.get(), members.data(),
                                            static_cast<uint32_t>(members.size()), o, e);
            }));
  tenon_comm_group* out = group.get();
  groups_[axes] = std::move(group);
  return out;
}

void RankDevice::abort() {
  aborted_.store(true, std::memory_order_relaxed);
  if (domain_ != nullptr) plugins_.comm.table->abort(domain_.get());
}

}  // namespace tenon
