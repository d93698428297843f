// Resolved recipes, through reading, plugins, model and compiler to proved programs, for small worlds.
#include "graph/recipe.h"

#include <nlohmann/json.hpp>

#include "fuzz.h"
#include "graph/model.h"
#include "host/resolve.h"
#include "plan/compile/compile.h"
#include "run/session.h"

namespace tenon::fuzz {
namespace {

// What takes long although it is right is left out: the product's own bounds are far above these.
constexpr int64_t kMostRanks = 16;
constexpr int64_t kMostOps = 200;           // of the model, repeats unrolled
constexpr int64_t kMostCompiledOps = 2000;  // and of all microbatches

int64_t size_of_model(const ModelSpec& model) {
  auto size = static_cast<int64_t>(model.params.size());
  for (const OpSpec& op : model.ops) {
    if (!op.repeat) {
      ++size;
      continue;
    }
    if (op.repeat->count > kMostOps) return kMaxOps + 1;
    size += op.repeat->count * static_cast<int64_t>(op.repeat->ops.size() + op.repeat->params.size() + 1);
  }
  return size;
}

// As many ranks as the mesh says, two where it leaves that open; a number that does not fit where there are
// more.
int64_t ranks_of(const Mesh& mesh) {
  int64_t ranks = 1;
  for (const Axis& axis : mesh.axes) ranks *= axis.size == 0 ? 2 : std::min(axis.size, kMostRanks + 1);
  return std::min(ranks, kMostRanks);
}

Status compile_all(PluginRegistry& registry, const Recipe& recipe) {
  TENON_TRY(const PluginSet plugins, load_plugins(registry, recipe));
  TENON_TRY(const Mesh mesh, resolve_mesh(recipe.mesh, ranks_of(recipe.mesh)));
  TENON_TRY(CompileOptions options, compile_options(recipe, plugins, mesh));
  options.most_ops = kMostCompiledOps;
  for (const ProgramKind kind : {ProgramKind::train, ProgramKind::eval, ProgramKind::logits}) {
    TENON_TRY(const Compiled compiled, compile(recipe, kind, options));
    for (int64_t rank = 0; rank < mesh.world(); ++rank) {
      if (compiled.of(rank).instrs.empty()) broken("a rank without a program");
    }
  }
  return {};
}

std::vector<Error> feed_recipe(std::string_view input) {
  const auto document = parse_json(std::string(input), "input");
  if (!document.ok()) return {document.error()};
  const auto recipe = read_recipe(*document);
  if (!recipe.ok()) return {recipe.error()};
  (void)recipe->lr.at(1);
  (void)recipe->lr.at(recipe->steps);
  const int64_t size = size_of_model(recipe->model);
  if (size > kMaxOps) {
    const auto model = build_forward(*recipe, recipe->batch, recipe->context, true);
    return model.ok() ? std::vector<Error>{} : std::vector<Error>{model.error()};
  }
  if (size > kMostOps) return {};
  static PluginRegistry registry(RegistryConfig{{TENON_PLUGIN_DIR}, false});
  const Status compiled = compile_all(registry, *recipe);
  return compiled.ok() ? std::vector<Error>{} : std::vector<Error>{compiled.error()};
}

}  // namespace

const Target& recipe() {
  static const Target target{
      "recipe",
      Form::json,
      feed_recipe,
      {"R002", "R003", "R004", "R005", "R006", "R007", "R010", "R014", "G002", "G003", "G004", "G005",
       "G006", "G007", "P001", "P003", "P004", "P010", "P011", "P021", "P031", "P032", "P033", "P036",
       "P037", "S001", "S002", "S003", "S004", "S005", "S006", "S007", "S008", "A002", "A003", "A007"},
      {"base/result.cpp", "base/json.cpp", "base/options.cpp", "core/graph/", "core/plan/",
       "core/host/plugins/", "core/host/resolve.cpp", "run/programs.cpp", "run/handle.h"},
      {{"A001", "a plugin of another ABI"},
       {"A004", "a library that is no plugin"},
       {"A005", "a plugin whose options contradict themselves"},
       {"A006", "a plugin that cannot start"},
       {"A010", "a plugin that refuses a call which core's checks let pass; options are told as R005"},
       {"A011", "a plugin of the tree that lacks a kernel or an option's meaning"},
       {"A012", "a plugin that fails without a code"},
       {"D003", "no data is read"},
       {"E010", "of rows and plugins, when there is no memory"},
       {"E011", "a plugin that reads files: none is opened"},
       {"E012", "a device: none is opened"},
       {"G001", "a row of the table of ops is wrong"},
       {"P002", "a sum of values whose placements no transfer makes alike"},
       {"P012", "all kernels of the tree are exact"},
       {"P030", "stages that do not hand on what others read"},
       {"P034", "all comm plugins of the tree sum in the fixed tree"},
       {"V001", "a program that is not what the model says"},
       {"V002", "as V001"},
       {"V003", "as V001"},
       {"V004", "as V001"},
       {"V005", "as V001"},
       {"V006", "as V001"},
       {"V007", "as V001"},
       {"V008", "as V001"},
       {"W010", "between ranks: none runs"},
       {"W011", "as W010"},
       {"W012", "as W010"}}};
  return target;
}

}  // namespace tenon::fuzz
