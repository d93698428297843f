// Models as users write them with nn, whose stages are unlike each other: without parameters of their own,
// with a weight that all blocks share, with two lists of blocks. Training and evaluation are those of one
// rank.
#include <cmath>

#include "workplace.hpp"

namespace tenon::test {
namespace {

struct Model {
  const char* name;
  const char* body;  // of nn.model; `embed` and `head` are there
  const char* mesh;
  const char* strategies;
  const char* schedule = "1f1b";
};

constexpr const char* kHead = R"(
local t = require "tenon"
local nn = t.nn
local hidden, vocab = { "hidden", 8 }, { "vocab", 256 }
local function embed(tokens) return nn.embedding { tokens, name = "wte", dims = { vocab, hidden }, std = 0.1 } end
local function head(x) return nn.linear { x, name = "lm", out = vocab, std = 0.1 } end
local function square(x, name) return nn.add(x, nn.linear { x, name = name, out = hidden, std = 0.1 }) end
)";

constexpr Model kModels[] = {
    {"a stage without parameters", R"(
  return head(nn.blocks(embed(tokens), 3, function(x) return nn.gelu(x) end)))",
     "pp = 3", "t.strategy.pipeline {}"},
    {"a weight that all blocks share", R"(
  local w = nn.param { name = "w.weight", dims = { { "hidden", 8 }, hidden }, init = nn.normal(0.1) }
  return head(nn.blocks(embed(tokens), 3, function(x) return nn.add(x, nn.linear { x, weight = w }) end)))",
     "{ \"pp\", 3 }, { \"dp\", 2 }",
     "t.strategy.pipeline {}, t.strategy.data {}, t.strategy.zero { stage = 3 }", "zb-h1"},
    {"a tied head on a stage of its own", R"(
  local w = nn.param { name = "w.weight", dims = { vocab, hidden }, init = nn.normal(0.1) }
  local x = nn.embedding { tokens, weight = w }
  x = nn.blocks(x, 2, function(h, i) return square(h, "h." .. i) end)
  return nn.linear { x, weight = w })",
     "pp = 3", "t.strategy.pipeline { apart = \"head\" }"},
    {"a gradient that stages hand on as it is", R"(
  return head(nn.blocks(embed(tokens), 3, function(x, i)
    return nn.add(x, nn.embedding { tokens, name = "w." .. i, dims = { vocab, hidden }, std = 0.1 })
  end)))",
     "{ \"pp\", 3 }, { \"tp\", 2 }", "t.strategy.pipeline {}, t.strategy.tensor {}", "zb-h1"},
    {"two lists of blocks, and work between them", R"(
  local x = nn.blocks(embed(tokens), 2, function(h, i) return square(h, "a." .. i) end)
  x = square(x, "between")
  x = nn.blocks(x, 2, function(h, i) return square(h, "b." .. i) end)
  return head(x))",
     "pp = 4", "t.strategy.pipeline {}"},
};

std::string recipe(const Model& model, bool alone) {
  return std::string(kHead) + "local m = nn.model(\"m\", function(tokens)" + model.body + "\nend)\n" +
         "return t.run { name = \"m\", steps = 3, batch = 8, microbatches = 4, context = 8, precision = "
         "\"f64\", "
         "model = m, data = t.data.text { file = \"text.txt\", valid = 0.1 }, kernels = "
         "\"kernels/reference\", "
         "comm = \"comm/local\", eval = { every = 3, batches = 2 }, "
         "optim = t.optim.adamw { lr = 0.01, eps = 1e-3, clip = 0.3 }" +
         (alone ? std::string()
                : std::string(", mesh = t.mesh { ") + model.mesh + " }, strategies = { " + model.strategies +
                      " }, schedule = \"schedule/" + model.schedule + "\"") +
         " }\n";
}

std::vector<double> losses_of(const Workplace& place, const std::string& name, const std::string& text) {
  place.write(name + ".lua", text);
  const CommandResult result = place.run({"train", name + ".lua", "--json", "--run-dir", name});
  EXPECT_EQ(result.code, 0) << result.err;
  std::vector<double> out;
  const std::string key = "\"loss\":";
  for (size_t at = 0; (at = result.out.find(key, at)) != std::string::npos;)
    out.push_back(std::stod(result.out.substr(at += key.size(), 30)));
  return out;
}

TEST(Stages, that_are_unlike_each_other_compute_what_one_rank_does) {
  const Workplace place;
  for (const Model& model : kModels) {
    SCOPED_TRACE(model.name);
    const std::string name = std::to_string(&model - kModels);
    const std::vector<double> alone = losses_of(place, name + "alone", recipe(model, true)),
                              found = losses_of(place, name, recipe(model, false));
    ASSERT_EQ(alone.size(), 4u) << "three steps and an evaluation";
    ASSERT_EQ(found.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(found[i], alone[i], 1e-10) << i;
    EXPECT_NE(alone[0], alone[2]);
  }
}

// What cuts a model by hand is for the ranks that trained.
TEST(Stages, cut_by_hand_are_evaluated_on_one_rank) {
  const Workplace place;
  for (const char* how : {"apart = \"head\"", "layers = \"1,2\"", "layers = \"0,3\""}) {
    SCOPED_TRACE(how);
    const std::string strategy = std::string("t.strategy.pipeline { ") + how + " }";
    const Model model{"", kModels[0].body, "pp = 2", strategy.c_str()};
    const std::string run = std::to_string(std::hash<std::string>()(how));
    const std::vector<double> trained = losses_of(place, run, recipe(model, false));
    ASSERT_EQ(trained.size(), 4u);
    const CommandResult found = place.run({"eval", run, "--json"});
    ASSERT_EQ(found.code, 0) << found.err;
    const size_t at = found.out.find("\"loss\":");
    ASSERT_NE(at, std::string::npos) << found.out;
    EXPECT_NEAR(std::stod(found.out.substr(at + 7, 30)), trained.back(), 1e-10);
  }
}

}  // namespace
}  // namespace tenon::test
