#include "recipes.h"

#include <sstream>

#include "recipes.hpp"
#include "samples.h"

namespace tenon::mutants {
namespace {

struct Row {
  const char* name;
  const char* model;  // "gpt2" (tied, with dropout), "gpt2_untied", "llama" (untied), "moe"
  std::vector<std::pair<const char*, int>> mesh;
  std::vector<std::pair<const char*, Json>> strategies;
  const char* schedule = "";
  int microbatches = 1;
  const char* optimizer = "adamw";
  bool exact = false;
  int batch = 4;
  int layers = 2;
};

const Json kPlain = Json::object();

Json zero(int stage, const char* axis = "dp", const char* within = "") {
  return {{"stage", stage}, {"axis", axis}, {"within", within}};
}
Json exchange(const char* how) { return {{"exchange", how}}; }

const std::vector<Row>& rows() {
  static const Json kSequence{{"sequence", true}};
  static const std::vector<Row> kRows{
      {"dp", "gpt2", {{"dp", 2}}, {{"data", kPlain}}, "", 2},
      {"zero1", "llama", {{"dp", 2}}, {{"data", kPlain}, {"zero", zero(1)}}, "", 1, "sgd"},
      {"zero2", "gpt2", {{"dp", 2}}, {{"data", kPlain}, {"zero", zero(2)}}, "", 2},
      {"lamb",
       "llama",
       {{"dp", 2}, {"tp", 2}},
       {{"data", kPlain}, {"tensor", kPlain}, {"zero", zero(2)}},
       "",
       2,
       "lamb"},
      {"zero3", "gpt2", {{"dp", 2}}, {{"data", kPlain}, {"zero", zero(3)}}, "", 2},
      {"tp", "llama", {{"tp", 2}}, {{"tensor", kSequence}}, "", 2},
      {"ring", "gpt2", {{"cp", 4}}, {{"context", exchange("ring")}}, "", 1, "sgd"},
      {"cp_gather", "llama", {{"cp", 2}}, {{"context", exchange("all_gather")}}},
      {"cp_exchange", "gpt2", {{"cp", 2}}, {{"context", exchange("all_to_all")}}},
      {"pp_1f1b", "gpt2_untied", {{"pp", 2}}, {{"pipeline", kPlain}}, "1f1b", 4},
      {"zb_v",
       "llama",
       {{"pp", 2}},
       {{"pipeline", {{"stages_per_rank", 2}}}},
       "zb-v",
       2,
       "adamw",
       false,
       4,
       4},
      {"tied", "gpt2", {{"pp", 2}, {"dp", 2}}, {{"pipeline", kPlain}, {"data", kPlain}}, "1f1b", 2},
      {"experts", "moe", {{"dp", 2}}, {{"data", kPlain}, {"expert", kPlain}}, "", 2},
      {"hierarchical",
       "gpt2",
       {{"dp_out", 2}, {"dp_in", 2}},
       {{"data", kPlain}, {"zero", zero(3, "dp", "dp_in")}},
       "",
       2,
       "adamw",
       false,
       8},
      {"exact", "gpt2", {{"dp", 4}}, {{"data", kPlain}, {"zero", zero(1)}}, "", 1, "adamw", true},
      {"pp_tp", "llama", {{"pp", 2}, {"tp", 2}}, {{"pipeline", kPlain}, {"tensor", kSequence}}, "1f1b", 2},
      {"shared_heads",
       "llama",
       {{"pp", 2}, {"tp", 4}},
       {{"pipeline", kPlain}, {"tensor", kPlain}},
       "1f1b",
       2},
  };
  return kRows;
}

Json model_of(const Row& row) {
  const std::string model = row.model;
  test::TinyModel tiny;
  tiny.layers = row.layers;
  tiny.width = 8;
  tiny.ffn = 8;
  tiny.groups = 2;
  tiny.head = 2;
  tiny.vocab = kVocabulary;
  tiny.context = kContext;
  tiny.tied = model == "gpt2";
  tiny.dropout = model.starts_with("gpt2") ? 0.1 : 0.0;
  tiny.reps = model == "llama" ? 2 : 1;
  tiny.experts = 4;
  tiny.routed = 2;
  tiny.slots = 1;
  if (model == "llama") return test::llama_model(tiny);
  return model == "moe" ? test::moe_model(tiny) : test::gpt2_model(tiny);
}

Json use(const std::string& plugin, const Json& options) {
  return {{"plugin", plugin}, {"options", options}};
}

Json document_of(const Row& row) {
  Json out = test::tiny_recipe(model_of(row), "none", kContext);
  out["precision"] = "f64";
  out["batch"] = row.batch;
  out["microbatches"] = row.microbatches;
  // The last sample of the one batch of evaluation is padding.
  out["data"]["valid"] = static_cast<double>(row.batch - 1) / kNumSamples;
  out["eval"]["batches"] = 1;
  out["optimizer"]["plugin"] = std::string("optimizer/") + row.optimizer;
  // With a larger eps than usual AdamW does not amplify the rounding of gradients that are zero in theory.
  const bool sgd = out["optimizer"]["plugin"] == "optimizer/sgd";
  out["optimizer"]["options"] =
      sgd ? Json{{"momentum", 0.9}, {"weight_decay", 0.1}} : Json{{"weight_decay", 0.1}, {"eps", 1e-3}};
  out["optimizer"]["clip"] = 0.1;
  out["mesh"] = Json::array();
  for (const auto& [axis, size] : row.mesh) out["mesh"].push_back({axis, size});
  out["strategies"] = Json::array();
  for (const auto& [name, options] : row.strategies)
    out["strategies"].push_back(use(std::string("parallel/") + name, options));
  if (*row.schedule != 0) out["schedule"] = use(std::string("schedule/") + row.schedule, kPlain);
  if (row.exact) out["numerics"] = {{"mode", "exact"}, {"shards", 4}};
  return out;
}

}  // namespace

const std::vector<NamedRecipe>& recipes() {
  static const std::vector<NamedRecipe> all = [] {
    std::vector<NamedRecipe> out;
    for (const Row& row : rows()) out.push_back({row.name, document_of(row)});
    return out;
  }();
  return all;
}

Json alone(const Json& document) {
  Json out = document;
  out["mesh"] = Json::array({Json::array({"dp", 1})});
  out["strategies"] = Json::array({use("parallel/data", kPlain)});
  out["microbatches"] = 1;
  out.erase("schedule");
  return out;
}

}  // namespace tenon::mutants
