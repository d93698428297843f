// Compiles small models without plugins: a pass of the test's own cuts the batch over dp.
#pragma once

#include <stdexcept>

#include "plan/compile/compile.h"
#include "recipes.hpp"

namespace tenon::test {

inline tenon_code shard_batch(const tenon_pass_config* config, tenon_graph* graph, tenon_error* error) {
  const tenon_value_id* ids = nullptr;
  const uint32_t n = config->api->values(graph, &ids);
  const std::vector<tenon_value_id> values(ids, ids + n);
  for (tenon_value_id id : values) {
    tenon_value_info info{};
    info.struct_size = sizeof info;
    config->api->value(graph, id, &info, error);
    if (info.role != TENON_ROLE_INPUT || info.ndim == 0) continue;
    const tenon_code code = config->api->shard(graph, id, 0, "dp", error);
    if (code < 0) return code;
  }
  return TENON_OK;
}

inline constexpr tenon_pass kShardBatch{sizeof(tenon_pass), TENON_PHASE_A, "dp", nullptr, nullptr, nullptr,
                                        shard_batch};

struct Setting {
  int dp = 1;
  bool exact = false;
  int microbatches = 1;  // fast only
  bool tree_order = true;
  uint64_t bucket_bytes = 2048;  // small: several buckets
  ProgramKind kind = ProgramKind::train;
};

inline Json small_gpt2() {
  TinyModel tiny;
  tiny.vocab = 32;
  return tiny_recipe(gpt2_model(tiny), "none", tiny.context);
}

// Throws if it does not compile: compile() verifies, so what it returns has passed every check.
inline Compiled compile_program(Json document, const Setting& setting) {
  document["numerics"]["mode"] = setting.exact ? "exact" : "fast";
  document["microbatches"] = setting.exact ? 1 : setting.microbatches;
  const auto recipe = read_recipe(document);
  if (!recipe.ok()) throw std::runtime_error(recipe.error().text());
  CompileOptions options;
  options.mesh = Mesh{{{"dp", setting.dp}}};
  options.passes = {{"test/shard_batch", &kShardBatch, {}}};
  options.optimizer = "optimizer/adamw";
  const OptimizerSlots adamw{{{"exp_avg"}, {"exp_avg_sq"}}};
  options.slots = {adamw, adamw};
  options.tree_order = setting.tree_order;
  options.bucket_bytes = setting.bucket_bytes;
  auto compiled = compile(*recipe, setting.kind, options);
  if (!compiled.ok()) throw std::runtime_error(compiled.error().text());
  return std::move(*compiled);
}

inline Program only_program(const Json& document, const Setting& setting) {
  return std::move(compile_program(document, setting).programs.at(0));
}

}  // namespace tenon::test
