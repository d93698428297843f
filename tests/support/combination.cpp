#include "combination.hpp"

#include <sstream>

namespace tenon::test {

namespace {

Json strategy_of(const std::string& word) {
  if (word == "tensor") return {{"plugin", "parallel/tensor"}, {"options", Json::object()}};
  if (word == "sequence") return {{"plugin", "parallel/tensor"}, {"options", {{"sequence", true}}}};
  if (word == "ring" || word == "all_gather" || word == "all_to_all")
    return {{"plugin", "parallel/context"}, {"options", {{"exchange", word}}}};
  if (word == "pipeline") return {{"plugin", "parallel/pipeline"}, {"options", Json::object()}};
  if (word == "pipeline2") return {{"plugin", "parallel/pipeline"}, {"options", {{"stages_per_rank", 2}}}};
  if (word.starts_with("zero")) {  // "zero2", "zero3:dp_in", "zero3:dp/dp_in"
    const std::string axes = word.size() > 5 ? word.substr(6) : "dp";
    const size_t slash = axes.find('/');
    const std::string within = slash == std::string::npos ? "" : axes.substr(slash + 1);
    return {{"plugin", "parallel/zero"},
            {"options", {{"stage", word[4] - '0'}, {"axis", axes.substr(0, slash)}, {"within", within}}}};
  }
  return {{"plugin", "parallel/" + word}, {"options", Json::object()}};
}

}  // namespace

Json recipe_of(const Combination& c, const std::string& corpus, bool alone) {
  TinyModel tiny;
  tiny.vocab = 256;
  tiny.layers = c.layers;
  tiny.context = 16;
  tiny.tied = c.model == "gpt2";
  tiny.dropout = c.model.starts_with("gpt2") ? 0.1 : 0.0;
  tiny.groups = c.groups;
  tiny.reps = (c.model == "llama" ? 8 : 4) / c.groups;
  tiny.routed = 4;
  const auto model = c.model == "llama" ? llama_model : c.model == "moe" ? moe_model : gpt2_model;
  Json recipe = tiny_recipe(model(tiny), corpus, tiny.context);
  recipe["precision"] = "f64";
  recipe["microbatches"] = c.microbatches;
  recipe["optimizer"]["plugin"] = "optimizer/" + c.optimizer;
  if (c.optimizer == "sgd") recipe["optimizer"]["options"] = {{"momentum", 0.9}};
  if (alone) return recipe;
  recipe["mesh"] = Json::array();
  for (const auto& [axis, size] : c.mesh) recipe["mesh"].push_back({axis, size});
  recipe["strategies"] = Json::array();
  std::stringstream words(c.strategies);
  for (std::string word; words >> word;) recipe["strategies"].push_back(strategy_of(word));
  if (!c.schedule.empty())
    recipe["schedule"] = {{"plugin", "schedule/" + c.schedule}, {"options", Json::object()}};
  return recipe;
}

int world_of(const Combination& c) {
  int world = 1;
  for (const auto& [axis, size] : c.mesh) world *= size;
  return world;
}

}  // namespace tenon::test
