#include "strategy_programs.hpp"

#include <stdexcept>

namespace tenon::test {

namespace {

constexpr uint64_t kSmallBuckets = 8192;  // bytes: several buckets

template <class T>
T value_or_throw(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().text());
  return std::move(result).value();
}

}  // namespace

Compiled compile_document(const Json& document, int world,
                          const std::function<void(CompileOptions&)>& change) {
  PluginRegistry registry(test_registry());
  const Recipe recipe = value_or_throw(read_recipe(document));
  const PluginSet plugins = value_or_throw(load_plugins(registry, recipe));
  const Mesh mesh = value_or_throw(resolve_mesh(recipe.mesh, world));
  CompileOptions options = value_or_throw(compile_options(recipe, plugins, mesh));
  options.bucket_bytes = kSmallBuckets;
  if (change) change(options);
  return value_or_throw(compile(recipe, ProgramKind::train, options));
}

const Compiled& compiled_of(const Combination& c) {
  static std::map<std::string, Compiled> known;
  auto it = known.find(c.name);
  if (it == known.end())
    it = known.emplace(c.name, compile_document(recipe_of(c, "none", false), world_of(c))).first;
  return it->second;
}

}  // namespace tenon::test
