// The resolved recipe as values. docs/reference/resolved-recipe.md describes the document.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "graph/graph.h"

namespace tenon {

struct ParamSpec {
  std::string name;  // may hold {i}
  Dims dims;
  Init init;
};

struct OpSpec;
struct RepeatSpec {
  int64_t count = 0;
  std::vector<int64_t> layers;  // ops of each layer of a round; empty: a round is one layer
  std::vector<std::pair<std::string, std::string>> carry;
  std::vector<ParamSpec> params;
  std::vector<OpSpec> ops;
};

struct OpSpec {
  std::string kind;  // empty: a repeat
  std::vector<std::string> in, out;
  Attrs attrs;
  std::shared_ptr<const RepeatSpec> repeat;
  std::string pointer;  // where in the document, for messages
};

struct ModelSpec {
  std::string name;
  std::vector<ParamSpec> params;
  std::vector<OpSpec> ops;
  std::string logits;
};

// A plugin with its options, still unchecked JSON: the plugin's own declarations decide.
struct PluginUse {
  std::string id;
  std::string options = "{}";  // canonical JSON
  std::string pointer;         // of the options
};

// Whose kernels run: those of the base, but for the kinds of op that another plugin is named for.
struct KernelsUse {
  PluginUse base;
  std::map<std::string, PluginUse> overrides;  // by kind
};

struct OptimizerGroup {
  std::vector<std::string> match;
  std::string options;  // canonical JSON: the common options with the group's own on top
  std::string pointer;
};

struct LearningRate {
  enum class Kind : uint8_t { constant, cosine, wsd };
  Kind kind = Kind::constant;
  double peak = 0, floor = 0;
  int64_t warmup = 0, steps = 0, decay = 0;
  // For step 1, 2, ...: linear warm-up from 0 (reached at step `warmup`), then the schedule.
  double at(int64_t step) const;
};

struct Recipe {
  std::string name;
  uint64_t seed = 0;
  Dtype precision = Dtype::f32;
  bool exact = false;
  int64_t shards = 8;
  int64_t steps = 0, batch = 0, microbatches = 1, context = 0;
  ModelSpec model;
  PluginUse data;
  double valid = 0;
  PluginUse optimizer;
  double clip = 0;
  std::vector<OptimizerGroup> groups;
  LearningRate lr;
  Mesh mesh;
  std::vector<PluginUse> strategies;
  PluginUse schedule;         // of the pipeline; id empty: none named
  std::string schedule_rows;  // canonical JSON: rows written by hand, instead of a plugin; empty: none
  KernelsUse kernels;
  PluginUse comm;
  bool fusion = true;  // neighbouring kernels may become one
  int64_t eval_every = 0, eval_batches = 0;
  int64_t save_every = 0, save_keep = 2;
  int64_t log_every = 10;
  std::vector<PluginUse> sinks;

  std::string document;  // the canonical text that was read: its hash names the recipe
};

constexpr int64_t kMaxRanks = int64_t{1} << 20;         // each of which is proved
constexpr int64_t kMaxMicrobatches = int64_t{1} << 24;  // of a step; logical shards in exact mode
// Strict: unknown, missing or ill-typed keys, numbers out of range (more ranks or microbatches than the
// above, integers beyond 64 bits) are errors whose place is a JSON pointer.
Result<Recipe> read_recipe(const Json& document);
// Fills a mesh axis of size 0 and checks that the product is `world`. Error P001.
Result<Mesh> resolve_mesh(const Mesh& mesh, int64_t world);
// '*' matches any run of characters.
bool matches_pattern(std::string_view pattern, std::string_view name);

}  // namespace tenon
