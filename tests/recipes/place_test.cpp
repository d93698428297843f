// The sidecar: where every part of the document was written, and how the core's own errors use it.
#include "support.h"

namespace tenon {
namespace {

const char* const kSource =
    "local t = require \"tenon\"\n"                                            // 1
    "local model = t.models.gpt2 {\n"                                          // 2
    "  layers = 2, heads = 1, width = 8, vocab = 8, context = 8,\n"            // 3
    "}\n"                                                                      // 4
    "local common = { lr = t.lr.cosine { peak = 1, warmup = 2 }, beta = 2,\n"  // 5
    "  groups = { { match = { \"a\" }, beta = 3 } } }\n"                       // 6
    "return t.run {\n"                                                         // 7
    "  steps = 4, batch = 1,\n"                                                // 8
    "  model = model,\n"                                                       // 9
    "  data = t.data.text { files = { \"a\",\n"                                // 10
    "    \"b\" } },\n"                                                         // 11
    "  optim = t.optim.plugin(\"optimizer/x\", common),\n"                     // 12
    "  kernels = \"kernels/cpu\", mesh = t.mesh { dp = 2 },\n"                 // 13
    "}\n";

TEST(Place, of_every_leaf_is_the_key_that_was_written) {
  const ResolvedRecipe recipe = resolve(kSource);
  const std::vector<std::pair<std::string, std::string>> expected{
      {"/steps", "r.lua:8:3"},
      {"/batch", "r.lua:8:14"},
      {"/data", "r.lua:10:3"},
      {"/data/options/files", "r.lua:10:24"},
      {"/data/options/files/0", "r.lua:10:34"},
      {"/data/options/files/1", "r.lua:11:5"},
      {"/optimizer", "r.lua:12:3"},
      {"/optimizer/options/beta", "r.lua:5:61"},
      {"/optimizer/groups/0/options/beta", "r.lua:6:33"},
      {"/optimizer/groups/0/match/0", "r.lua:6:26"},
      {"/lr", "r.lua:5:18"},
      {"/lr/warmup", "r.lua:5:47"},
      {"/kernels", "r.lua:13:3"},
      {"/mesh/0", "r.lua:13:44"},
      {"/model", "r.lua:9:3"},
      {"/model/ops/0", "r.lua:2:15"},
      {"/model/ops/3/ops/0/attrs/eps", "r.lua:2:15"},
      {"/model/params/0/init/std", "r.lua:2:15"},
      {"/seed", "r.lua:7:8"},
  };
  for (const auto& [pointer, place] : expected) {
    EXPECT_EQ(recipe.provenance.contains(pointer) ? recipe.provenance.at(pointer) : "none", place) << pointer;
  }
}

void expect_all(const ResolvedRecipe& recipe, const Json& value, const std::string& pointer) {
  EXPECT_TRUE(recipe.provenance.contains(pointer)) << pointer;
  if (value.is_object()) {
    for (const auto& [key, part] : value.items()) expect_all(recipe, part, pointer + "/" + key);
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) expect_all(recipe, value[i], pointer + "/" + std::to_string(i));
  }
}

TEST(Place, no_part_is_without_one) {
  const ResolvedRecipe recipe = resolve(kSource);
  expect_all(recipe, recipe.recipe, "");
}

TEST(Place, of_an_op_is_the_call_in_the_users_own_model) {
  const ResolvedRecipe own = resolve(
      "local t = require \"tenon\"\nlocal nn = t.nn\n"
      "local m = nn.model(\"m\", function(tokens)\n"
      "  local x = nn.embedding { tokens, name = \"e\", dims = { { \"vocab\", 8 }, { \"hidden\", 4 } } }\n"
      "  local y = nn.linear { x, name = \"head\", out = { \"vocab\", 8 } }\n"
      "  return y\nend)\n"
      "return t.run { steps = 1, batch = 1, context = 1, model = m, data = t.data.text { file = \"x\" },\n"
      "optim = t.optim.sgd { lr = 1 } }");
  EXPECT_EQ(own.provenance.at("/model/ops/0"), "r.lua:4:13");
  EXPECT_EQ(own.provenance.at("/model/ops/1/in"), "r.lua:5:13");
  EXPECT_EQ(own.provenance.at("/model/params/1/dims"), "r.lua:5:13");
}

TEST(Place, of_a_pointer_that_is_not_there_is_that_of_its_parent) {
  ResolvedRecipe recipe;
  recipe.provenance = {{"", "r.lua:1:1"}, {"/a", "r.lua:2:2"}};
  EXPECT_EQ(place_of(recipe, "/a/b/c"), "r.lua:2:2");
  EXPECT_EQ(place_of(recipe, "/b"), "r.lua:1:1");
  EXPECT_EQ(place_of({}, "/b"), "");
}

TEST(Place, goes_into_an_error_of_the_core) {
  const RecipeFolder folder;
  folder.write("r.lua", kSource);
  const auto recipe = evaluate_recipe(request_for(folder.at("r.lua")));
  ASSERT_TRUE(recipe.ok()) << recipe.error().text();
  const Error error =
      locate(Error{"R002", "unknown option 'beta'", "/optimizer/options/beta", "", TENON_E_RECIPE}, *recipe);
  EXPECT_EQ(folder.shown(error.place),
            "r.lua:5:61\n"
            "  |\n"
            "5 | local common = { lr = t.lr.cosine { peak = 1, warmup = 2 }, beta = 2,\n"
            "  |                                                             ^^^^");
  EXPECT_EQ(locate(Error{"C001", "x", "file.bin", ""}, *recipe).place, "file.bin");
}

}  // namespace
}  // namespace tenon
