#include "bench/one_rank.h"

namespace tenon::bench {

Result<std::unique_ptr<OneRank>> OneRank::open(const Recipe& recipe, const PluginSet& plugins, int threads) {
  auto out = std::make_unique<OneRank>();
  TENON_TRY(out->pool_, ThreadPool::create(threads));
  Mesh mesh = recipe.mesh;
  for (Axis& axis : mesh.axes) axis.size = 1;
  TENON_TRY(const CompileOptions options, compile_options(recipe, plugins, mesh));
  TENON_TRY(out->compiled_, compile(recipe, ProgramKind::train, options));
  const ThreadPool::Use use(*out->pool_);
  TENON_TRY(out->device_, RankDevice::open(plugins, {0, 1}, mesh, nullptr, -1));
  return out;
}

Result<Handle<void>> device_memory(RankDevice& device, uint64_t bytes) {
  const auto& kernels = device.plugins().kernels;
  return open_handle<void>(
      kernels.id, [&device](void* p) { device.plugins().kernels.table->free(device.kernels(), p); },
      [&](void** o, auto* e) {
        return kernels.table->alloc(device.kernels(), std::max<uint64_t>(bytes, kAlignment), o, e);
      });
}

}  // namespace tenon::bench
