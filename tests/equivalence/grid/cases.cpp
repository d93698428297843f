#include "cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/rng.h"
#include "recipes.hpp"

namespace tenon::test {
namespace {

constexpr uint64_t kSeed = 20;
constexpr int kMostRanks = 16;
constexpr Sizes kSizes;

// -- values of the factors --------------------------------------------------------------------------

const std::vector<int> kLayers{3, 4, 5, 9};
const std::vector<Data> kData{{1, 1}, {1, 2}, {1, 4}, {1, 8}, {2, 2}};
const std::vector<Zero> kZeros{{0, "dp"},    {1, "dp"},          {2, "dp"},
                               {3, "dp"},    {1, "dp_in"},       {2, "dp_in"},
                               {3, "dp_in"}, {3, "dp", "dp_in"}, {3, "dp", "dp_out"}};
const std::vector<Context> kContexts{{1, ""},           {2, "ring"},       {4, "ring"},
                                     {2, "all_gather"}, {4, "all_gather"}, {2, "all_to_all"},
                                     {4, "all_to_all"}};
const std::vector<std::string> kExpertAxes{"", "dp", "dp_in"};
const std::vector<int> kMicrobatches{1, 2, 4};
const std::vector<std::string> kOptimizers{"sgd", "adamw"};
// Where dp is one axis it stands where dp_in does here.
const std::vector<std::vector<std::string>> kOrders{
    {"pp", "dp_out", "dp_in", "cp", "tp"}, {"dp_out", "dp_in", "pp", "cp", "tp"},
    {"tp", "cp", "dp_in", "dp_out", "pp"}, {"cp", "tp", "pp", "dp_out", "dp_in"},
    {"dp_in", "tp", "pp", "dp_out", "cp"}, {"pp", "dp_out", "dp_in", "cp", "tp"}};
constexpr size_t kReversedOrder = 3, kIdleOrder = 5;  // of these: see Case

std::vector<Pipeline> pipelines() {
  std::vector<Pipeline> out{{}};
  for (int ranks : {2, 4}) {
    for (const std::string& schedule : kSchedules) {
      const bool several = schedule == "interleaved" || schedule == "zb-v" || schedule == "dualpipe-v";
      out.push_back({ranks, several ? 2 : 1, schedule});
    }
  }
  return out;
}

std::vector<Tensor> tensors() {
  std::vector<Tensor> out{{}};
  for (int ranks : {2, 4}) {
    for (bool sequence : {false, true}) {
      for (bool vocabulary : {true, false}) out.push_back({ranks, sequence, vocabulary});
    }
  }
  return out;
}

const std::vector<Pipeline> kPipelines = pipelines();
const std::vector<Tensor> kTensors = tensors();

enum Factor : size_t {
  kModel,
  kDepth,
  kPipeline,
  kDatum,
  kZero,
  kContextOf,
  kTensorOf,
  kExpert,
  kMicrobatch,
  kOptimizer,
  kPadding,
  kOrder,
  kFactors
};

// The value of a factor; nothing while it is open.
template <class T>
const T* value(const Choice& choice, Factor factor, const std::vector<T>& values) {
  return choice[factor] == kOpen ? nullptr : &values[static_cast<size_t>(choice[factor])];
}

// -- constraints ------------------------------------------------------------------------------------

bool world_fits(const Choice& choice, int most_ranks) {
  int world = 1;
  if (const auto* p = value(choice, kPipeline, kPipelines)) world *= p->ranks;
  if (const auto* d = value(choice, kDatum, kData)) world *= d->ranks();
  if (const auto* c = value(choice, kContextOf, kContexts)) world *= c->ranks;
  if (const auto* t = value(choice, kTensorOf, kTensors)) world *= t->ranks;
  return world <= most_ranks;
}

// Each stage has a layer; models that are larger than they need to be cost time.
bool stages_fit(const Choice& choice) {
  const auto* pipeline = value(choice, kPipeline, kPipelines);
  const auto* layers = value(choice, kDepth, kLayers);
  if (pipeline == nullptr || layers == nullptr) return true;
  const int stages = pipeline->ranks * pipeline->stages;
  return stages <= *layers && (*layers == kLayers.back()) == (stages > kLayers[kLayers.size() - 2]);
}

bool data_fits(const Choice& choice) {
  const auto* data = value(choice, kDatum, kData);
  if (data == nullptr) return true;
  const auto* zero = value(choice, kZero, kZeros);
  const auto* experts = value(choice, kExpert, kExpertAxes);
  const auto* microbatches = value(choice, kMicrobatch, kMicrobatches);
  const auto has = [&](const std::string& axis) {
    return axis == "dp" ? data->ranks() > 1 : data->outer > 1;
  };
  if (zero != nullptr && zero->stage > 0 && !has(zero->axis)) return false;
  if (zero != nullptr && !zero->within.empty() && !has(zero->within)) return false;
  if (experts != nullptr && !experts->empty() && !has(*experts)) return false;
  return microbatches == nullptr || kSizes.batch % (*microbatches * data->ranks()) == 0;
}

bool experts_fit(const Choice& choice) {
  const auto* model = value(choice, kModel, kModels);
  const auto* experts = value(choice, kExpert, kExpertAxes);
  return model == nullptr || experts == nullptr || experts->empty() || *model == "moe";
}

// all_to_all cuts heads, which tensor has cut before; a routing group is not cut.
bool sequence_fits(const Choice& choice) {
  const auto* context = value(choice, kContextOf, kContexts);
  const auto* tensor = value(choice, kTensorOf, kTensors);
  if (context == nullptr || tensor == nullptr) return true;
  if (context->exchange == "all_to_all" && kSizes.groups % (context->ranks * tensor->ranks) != 0)
    return false;
  const auto* model = value(choice, kModel, kModels);
  const int parts = context->ranks * (tensor->sequence ? tensor->ranks : 1);
  return model == nullptr || *model != "moe" || kSizes.context % (parts * kSizes.routed) == 0;
}

// -- from choices to recipes ------------------------------------------------------------------------

Case case_of(const Choice& choice) {
  Case c;
  c.model = *value(choice, kModel, kModels);
  c.layers = *value(choice, kDepth, kLayers);
  c.pipeline = *value(choice, kPipeline, kPipelines);
  c.data = *value(choice, kDatum, kData);
  c.zero = *value(choice, kZero, kZeros);
  c.context = *value(choice, kContextOf, kContexts);
  c.tensor = *value(choice, kTensorOf, kTensors);
  c.experts = *value(choice, kExpert, kExpertAxes);
  c.microbatches = *value(choice, kMicrobatch, kMicrobatches);
  c.optimizer = *value(choice, kOptimizer, kOptimizers);
  c.padded = choice[kPadding] == 1;
  c.order = *value(choice, kOrder, kOrders);
  c.reversed = static_cast<size_t>(choice[kOrder]) == kReversedOrder;
  c.idle_axes = static_cast<size_t>(choice[kOrder]) == kIdleOrder;
  return c;
}

Json model_of(const Case& c) {
  TinyModel tiny;
  tiny.layers = c.layers;
  tiny.round = c.sizes.round;
  tiny.width = c.sizes.width;
  tiny.ffn = c.sizes.ffn;
  tiny.groups = c.sizes.groups;
  tiny.head = c.sizes.head;
  tiny.vocab = c.sizes.vocab;
  tiny.context = c.sizes.context;
  tiny.tied = c.model != "gpt2_untied" && c.model != "moe";
  tiny.dropout = c.model == "gpt2" ? 0.1 : 0.0;
  tiny.reps = c.sizes.reps > 0 ? c.sizes.reps : c.model == "llama" ? 2 : 1;
  tiny.experts = c.sizes.experts;
  tiny.routed = c.sizes.routed;
  tiny.slots = 1;
  if (c.model == "llama") return llama_model(tiny);
  return c.model == "moe" ? moe_model(tiny) : gpt2_model(tiny);
}

int size_of_axis(const Case& c, const std::string& axis) {
  if (axis == "pp") return c.pipeline.ranks;
  if (axis == "cp") return c.context.ranks;
  if (axis == "tp") return c.tensor.ranks / c.tensor.inner;
  return axis == "dp_out" ? c.data.outer : c.data.inner;
}

Json mesh_of(const Case& c) {
  Json mesh = Json::array();
  for (const std::string& axis : c.order) {
    const bool kept = axis == "dp_out"  ? c.data.split
                      : axis == "dp_in" ? c.idle_axes || c.data.kept || c.data.split
                                        : c.idle_axes;
    if (size_of_axis(c, axis) == 1 && !kept) continue;
    const bool split = axis == "tp" && c.tensor.inner > 1;
    const std::string name = axis == "dp_in" && !c.data.in_parts() ? "dp" : split ? "tp_out" : axis;
    mesh.push_back({name, size_of_axis(c, axis)});
    if (split) mesh.push_back({"tp_in", c.tensor.inner});
  }
  return mesh;
}

Json use(const std::string& plugin, const Json& options = Json::object()) {
  return {{"plugin", plugin}, {"options", options}};
}

Json strategies_of(const Case& c) {
  Json out = Json::array();
  if (c.pipeline.ranks > 1 || c.idle_axes)
    out.push_back(
        use("parallel/pipeline", {{"stages_per_rank", c.pipeline.stages}, {"apart", c.pipeline.apart}}));
  if (c.data.ranks() > 1 || c.data.kept || c.data.split || c.idle_axes) out.push_back(use("parallel/data"));
  if (c.context.ranks > 1 || c.idle_axes)
    out.push_back(use("parallel/context", {{"exchange", c.context.ranks > 1 ? c.context.exchange : "ring"}}));
  if (c.tensor.ranks > 1 || c.idle_axes)
    out.push_back(use("parallel/tensor", {{"sequence", c.tensor.sequence},
                                          {"vocabulary", c.tensor.vocabulary},
                                          {"experts", c.tensor.experts}}));
  std::stringstream axes(c.experts);
  for (std::string axis; axes >> axis;) out.push_back(use("parallel/expert", {{"axis", axis}}));
  if (c.zero.stage > 0) {
    out.push_back(
        use("parallel/zero", {{"stage", c.zero.stage}, {"axis", c.zero.axis}, {"within", c.zero.within}}));
  }
  if (c.reversed) std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace

std::string Sizes::name() const {
  std::string out;
  const auto say = [&](const char* letter, int Sizes::*size) {
    if (this->*size != kSizes.*size) out += fmt::format("_{}{}", letter, this->*size);
  };
  say("b", &Sizes::batch);
  say("t", &Sizes::context);
  say("v", &Sizes::vocab);
  say("w", &Sizes::width);
  say("f", &Sizes::ffn);
  say("g", &Sizes::groups);
  say("h", &Sizes::head);
  say("e", &Sizes::experts);
  say("r", &Sizes::routed);
  say("q", &Sizes::reps);
  say("n", &Sizes::round);
  return out;
}

std::string Case::name() const {
  std::string out = fmt::format("{}_l{}{}", model, layers, sizes.name());
  if (pipeline.ranks > 1)
    out += fmt::format("_pp{}x{}_{}", pipeline.ranks, pipeline.stages, pipeline.schedule);
  if (pipeline.apart != "none") out += "_apart_" + pipeline.apart;
  if (data.in_parts())
    out += fmt::format("_dp{}x{}", data.outer, data.inner);
  else if (data.ranks() > 1 || data.kept)
    out += fmt::format("_dp{}", data.inner);
  if (zero.stage > 0)
    out += fmt::format("_zero{}{}", zero.stage, zero.axis == "dp" ? "" : zero.axis.substr(3));
  if (!zero.within.empty()) out += "_within_" + zero.within.substr(3);
  if (context.ranks > 1) out += fmt::format("_cp{}_{}", context.ranks, context.exchange);
  if (tensor.ranks > 1)
    out += fmt::format("_tp{}{}{}", tensor.ranks, tensor.sequence ? "_sp" : "",
                       tensor.vocabulary ? "" : "_novp");
  if (tensor.inner > 1) out += fmt::format("_of_{}", tensor.inner);
  if (!tensor.experts.empty()) out += "_etp_" + tensor.experts;
  if (!experts.empty()) out += "_ep_" + experts;
  out += fmt::format("_mb{}_{}{}_", microbatches, optimizer, padded ? "_padded" : "");
  for (const std::string& axis : order)
    out += axis == "dp_out" ? "o" : axis == "dp_in" ? "i" : axis.substr(0, 1);
  if (reversed) out += "_reversed";
  if (idle_axes) out += "_idle";
  for (const char c : {'-', ' '}) std::ranges::replace(out, c, '_');
  return out;
}

std::vector<int> factor_sizes() {
  std::vector<int> out(kFactors);
  out[kModel] = static_cast<int>(kModels.size());
  out[kDepth] = static_cast<int>(kLayers.size());
  out[kPipeline] = static_cast<int>(kPipelines.size());
  out[kDatum] = static_cast<int>(kData.size());
  out[kZero] = static_cast<int>(kZeros.size());
  out[kContextOf] = static_cast<int>(kContexts.size());
  out[kTensorOf] = static_cast<int>(kTensors.size());
  out[kExpert] = static_cast<int>(kExpertAxes.size());
  out[kMicrobatch] = static_cast<int>(kMicrobatches.size());
  out[kOptimizer] = static_cast<int>(kOptimizers.size());
  out[kPadding] = 2;
  out[kOrder] = static_cast<int>(kOrders.size());
  return out;
}

bool allowed(const Choice& choice) {
  return world_fits(choice, kMostRanks) && stages_fit(choice) && data_fits(choice) && experts_fit(choice) &&
         sequence_fits(choice);
}

const Grid& grid() {
  static const Grid made = make_grid(kMostRanks);
  return made;
}

Grid make_grid(int most_ranks) {
  const Allowed fits = [=](const Choice& choice) {
    return world_fits(choice, most_ranks) && allowed(choice);
  };
  Grid out{cover_triples(factor_sizes(), fits, kSeed), {}};
  for (const Choice& choice : out.array.cases) out.cases.push_back(case_of(choice));
  return out;
}

std::vector<Case> shuffled() {
  const std::vector<Case>& cases = grid().cases;
  const Permutation order(cases.size(), kSeed);
  std::vector<Case> out;
  for (size_t i = 0; i < cases.size(); ++i) out.push_back(cases[order(i)]);
  return out;
}

Json in_f32(Json recipe, bool exact) {
  recipe["precision"] = "f32";
  recipe["kernels"]["plugin"] = "kernels/cpu";
  if (!exact) return recipe;
  recipe["numerics"]["mode"] = "exact";
  recipe["microbatches"] = 1;
  return recipe;
}

std::string text_of(const Case& c) {
  const int samples = c.sizes.batch + 4, missing = c.padded ? (2 * c.sizes.context + 1) / 3 : 0;
  std::string out;
  for (int i = 0; i < samples * c.sizes.context + 1 - missing; ++i)
    out += static_cast<char>('a' + (i * i * 7 + i / 3) % 26);
  return out;
}

std::string key_alone(const Case& c) {
  return fmt::format("{} {} {} {} {}", c.model, c.layers, c.optimizer, c.padded, c.sizes.name());
}

Json alone(const Case& c, const std::string& text) {
  Json recipe = tiny_recipe(model_of(c), text, c.sizes.context);
  recipe["precision"] = "f64";
  recipe["batch"] = c.sizes.batch;
  recipe["data"]["valid"] = 0.0;
  recipe["optimizer"]["plugin"] = "optimizer/" + c.optimizer;
  // With a larger eps than usual AdamW does not amplify the rounding of gradients that are zero in theory.
  recipe["optimizer"]["options"] =
      c.optimizer == "sgd" ? Json{{"momentum", 0.9}} : Json{{"weight_decay", 0.1}, {"eps", 1e-3}};
  recipe["optimizer"]["clip"] = 0.1;
  return recipe;
}

Json together(const Case& c, const std::string& text) {
  Json recipe = alone(c, text);
  recipe["microbatches"] = c.microbatches;
  recipe["mesh"] = mesh_of(c);
  recipe["strategies"] = strategies_of(c);
  if (c.pipeline.ranks > 1 || c.idle_axes)
    recipe["schedule"] =
        use("schedule/" + (c.pipeline.ranks > 1 ? c.pipeline.schedule : std::string("1f1b")));
  return recipe;
}

}  // namespace tenon::test
