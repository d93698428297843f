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

}  // namespace tenon::bench
