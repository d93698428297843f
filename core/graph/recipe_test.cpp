#include "graph/recipe.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "graph/joint.h"
#include "graph/model.h"

namespace tenon {
namespace {

Json document() {
  return Json::parse(R"({
    "tenon": 1, "name": "tiny", "seed": 1337, "precision": "f64", "numerics": {"mode": "fast", "shards": 8},
    "steps": 100, "batch": 8, "microbatches": 2, "context": 32,
    "model": {
      "name": "mlp",
      "params": [
        {"name": "wte", "dims": [["vocab", 16], ["hidden", 4]], "init": {"kind": "normal", "std": 0.02}},
        {"name": "norm", "dims": [["hidden", 4]], "init": {"kind": "ones"}}
      ],
      "ops": [
        {"op": "embedding", "in": ["tokens", "wte"], "out": ["x"]},
        {"repeat": 2, "index": "i", "carry": [["x", "y"]],
         "params": [{"name": "h.{i}.w", "dims": [["hidden", 4], ["hidden", 4]], "init": {"kind": "uniform", "bound": 1}}],
         "ops": [
           {"op": "linear", "in": ["x", "h.{i}.w"], "out": ["u"]},
           {"op": "add", "in": ["x", "u"], "out": ["y"]}
         ]},
        {"op": "rmsnorm", "in": ["x", "norm"], "out": ["n"], "attrs": {"eps": 1e-5}},
        {"op": "linear", "in": ["n", "wte"], "out": ["logits"]}
      ],
      "logits": "logits"
    },
    "data": {"plugin": "data/text", "options": {"files": ["a.txt"]}, "valid": 0.05},
    "optimizer": {
      "plugin": "optimizer/adamw", "options": {"beta2": 0.95, "weight_decay": 0.1}, "clip": 1.0,
      "groups": [{"match": ["*.bias", "*norm*"], "options": {"weight_decay": 0.0}}]
    },
    "lr": {"kind": "cosine", "peak": 0.001, "floor": 0.0001, "warmup": 10, "steps": 100},
    "mesh": [["dp", 2], ["tp", 0]],
    "strategies": [{"plugin": "parallel/data", "options": {}}],
    "kernels": {"plugin": "kernels/cpu"},
    "comm": {"plugin": "comm/ucx", "options": {"progress": true}},
    "eval": {"every": 50, "batches": 4},
    "save": {"every": 25, "keep": 3},
    "log": {"every": 10, "sinks": [{"plugin": "sink/jsonl"}]}
  })");
}

Json with(const char* pointer, const Json& value) {
  Json out = document();
  out[Json::json_pointer(pointer)] = value;
  return out;
}

Json without(const char* pointer, const char* key) {
  Json out = document();
  out[Json::json_pointer(pointer)].erase(key);
  return out;
}

struct Wrong {
  const char* name;
  Json document;
  const char* code;
  const char* cause;
  const char* place;
  const char* fix = "";
};

std::vector<Wrong> wrong_documents() {
  const char* const name_of_run = "a letter or digit, then letters, digits, '.', '_' and '-', 64 in all";
  const char* const name_of_axis = "a letter or _, then letters, digits and _, at most 32 of them";
  return {
      {"NoObject", Json(3), "R003", "expected an object, got number", ""},
      // unknown keys
      {"UnknownTop", with("/sede", 3), "R002", "unknown key 'sede'", "/sede",
       "known keys: batch comm context data eval fusion kernels log lr mesh microbatches model name numerics "
       "optimizer precision "
       "save schedule seed steps strategies tenon"},
      {"UnknownInModel", with("/model/layers", 3), "R002", "unknown key 'layers'", "/model/layers",
       "known keys: logits name ops params"},
      {"UnknownInParam", with("/model/params/1/shape", 3), "R002", "unknown key 'shape'",
       "/model/params/1/shape", "known keys: dims init name"},
      {"UnknownInInit", with("/model/params/1/init/std", 3), "R002", "unknown key 'std'",
       "/model/params/1/init/std", "known keys: kind"},
      {"UnknownInOp", with("/model/ops/0/attr", 3), "R002", "unknown key 'attr'", "/model/ops/0/attr",
       "known keys: attrs in op out"},
      {"UnknownInRepeat", with("/model/ops/1/times", 3), "R002", "unknown key 'times'", "/model/ops/1/times",
       "known keys: carry index layers ops params repeat"},
      {"UnknownInRepeatedOp", with("/model/ops/1/ops/0/bias", true), "R002", "unknown key 'bias'",
       "/model/ops/1/ops/0/bias", "known keys: attrs in op out"},
      {"UnknownInKernels", with("/kernels/override", Json::object()), "R002", "unknown key 'override'",
       "/kernels/override", "known keys: options overrides plugin"},
      {"UnknownInOverride", with("/kernels/overrides", {{"gelu", {{"plugin", "kernels/a"}, {"x", 1}}}}),
       "R002", "unknown key 'x'", "/kernels/overrides/gelu/x", "known keys: options plugin"},
      {"OverridesList", with("/kernels/overrides", Json::array()), "R003", "overrides are an object",
       "/kernels/overrides", ""},
      {"OverrideOfNoKind", with("/kernels/overrides", {{"gelo", {{"plugin", "kernels/a"}}}}), "G003",
       "no kernel is of kind 'gelo'", "/kernels/overrides/gelo", "did you mean 'gelu'?"},
      {"OverrideOfTransfer", with("/kernels/overrides", {{"all_reduce", {{"plugin", "kernels/a"}}}}), "G003",
       "no kernel is of kind 'all_reduce'", "/kernels/overrides/all_reduce",
       "docs/reference/ops.md lists the kinds"},
      {"OverrideLikeBase",
       with("/kernels", {{"plugin", "kernels/a"}, {"overrides", {{"gelu", {{"plugin", "kernels/a"}}}}}}),
       "R005", "'kernels/a' is what runs all other kinds too", "/kernels/overrides/gelu",
       "remove it, or name another plugin or other options"},
      {"UnknownInLr", with("/lr/value", 3), "R002", "unknown key 'value'", "/lr/value",
       "known keys: floor kind peak steps warmup"},
      {"UnknownInOptimizer", with("/optimizer/lr", 3), "R002", "unknown key 'lr'", "/optimizer/lr",
       "known keys: clip groups options plugin"},
      {"UnknownInGroup", with("/optimizer/groups/0/name", 3), "R002", "unknown key 'name'",
       "/optimizer/groups/0/name", "known keys: match options"},
      {"UnknownInStrategy", with("/strategies/0/axis", "dp"), "R002", "unknown key 'axis'",
       "/strategies/0/axis", "known keys: options plugin"},
      {"UnknownInSink", with("/log/sinks/0/path", "x"), "R002", "unknown key 'path'", "/log/sinks/0/path",
       "known keys: options plugin"},
      {"UnknownInNumerics", with("/numerics/tree", 3), "R002", "unknown key 'tree'", "/numerics/tree",
       "known keys: mode shards"},
      {"UnknownInEval", with("/eval/keep", 3), "R002", "unknown key 'keep'", "/eval/keep",
       "known keys: batches every"},
      // missing keys
      {"MissingSeed", without("", "seed"), "R004", "missing key 'seed'", ""},
      {"MissingModel", without("", "model"), "R004", "missing key 'model'", ""},
      {"MissingLogits", without("/model", "logits"), "R004", "missing key 'logits'", "/model"},
      {"MissingDims", without("/model/params/0", "dims"), "R004", "missing key 'dims'", "/model/params/0"},
      {"MissingStd", without("/model/params/0/init", "std"), "R004", "missing key 'std'",
       "/model/params/0/init"},
      {"MissingOut", without("/model/ops/0", "out"), "R004", "missing key 'out'", "/model/ops/0"},
      {"MissingCarry", without("/model/ops/1", "carry"), "R004", "missing key 'carry'", "/model/ops/1"},
      {"MissingPeak", without("/lr", "peak"), "R004", "missing key 'peak'", "/lr"},
      {"MissingPlugin", without("/comm", "plugin"), "R004", "missing key 'plugin'", "/comm"},
      {"MissingMatch", without("/optimizer/groups/0", "match"), "R004", "missing key 'match'",
       "/optimizer/groups/0"},
      {"MissingKeep", without("/save", "keep"), "R004", "missing key 'keep'", "/save"},
      // wrong types
      {"TextForNumber", with("/steps", "many"), "R003", "steps: expected an integer, got \"many\"", "/steps"},
      {"RealForInteger", with("/batch", 2.5), "R003", "batch: expected an integer, got 2.5", "/batch"},
      {"NumberForText", with("/name", 3), "R003", "name: expected a string, got 3", "/name"},
      {"TextForReal", with("/lr/peak", "high"), "R003", "peak: expected a number, got \"high\"", "/lr/peak"},
      {"NumberForArray", with("/model/ops", 3), "R003", "ops: expected an array, got 3", "/model/ops"},
      {"ArrayForObject", with("/model", Json::array()), "R003", "expected an object, got array", "/model"},
      {"NumberForOptions", with("/data/options", 3), "R003", "options are an object", "/data/options"},
      {"NumberForName", with("/model/ops/0/in/0", 3), "R003", "expected names, got 3", "/model/ops/0/in"},
      {"TextForAttr", with("/model/ops/2/attrs/eps", "x"), "R003", "an attribute is a number, got \"x\"",
       "/model/ops/2/attrs/eps"},
      {"ArrayForAttrs", with("/model/ops/2/attrs", Json::array({1})), "R003",
       "attrs: expected an object, got [1]", "/model/ops/2/attrs"},
      {"NumberForDims", with("/model/params/0/dims/1", 4), "R003", "dims are pairs [name, size >= 1], got 4",
       "/model/params/0/dims"},
      {"NumberForCarry", with("/model/ops/1/carry/0", "x"), "R003",
       "carry lists pairs [name on entry, name on exit], got \"x\"", "/model/ops/1/carry"},
      {"NumberForAxis", with("/mesh/0", "dp"), "R003", "axes are pairs [name, size >= 0], got \"dp\"",
       "/mesh"},
      // out of range
      {"NegativeSeed", with("/seed", -1), "R005", "seed = -1: must be at least 0", "/seed"},
      {"ZeroBatch", with("/batch", 0), "R005", "batch = 0: must be at least 1", "/batch"},
      {"ZeroMicrobatches", with("/microbatches", 0), "R005", "microbatches = 0: must be at least 1",
       "/microbatches"},
      {"NameOfAnotherFolder", with("/name", "../x"), "R005", "the recipe is called \"../x\"", "/name",
       name_of_run},
      {"NameThatIsHidden", with("/name", ".x"), "R005", "the recipe is called \".x\"", "/name", name_of_run},
      {"NoName", with("/name", ""), "R005", "the recipe is called \"\"", "/name", name_of_run},
      {"LongName", with("/name", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"), "R005",
       "the recipe is called \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"", "/name",
       name_of_run},
      {"NegativePeak", with("/lr/peak", -0.5), "R005", "peak = -0.5: must be at least 0", "/lr/peak"},
      {"NegativeClip", with("/optimizer/clip", -1), "R005", "clip = -1: must be at least 0",
       "/optimizer/clip"},
      {"ValidOfAll", with("/data/valid", 1), "R005", "valid is a share below 1", "/data/valid"},
      {"ZeroKeep", with("/save/keep", 0), "R005", "keep = 0: must be at least 1", "/save/keep"},
      {"EmptyDim", with("/model/params/0/dims/1/1", 0), "R005",
       "dims are pairs [name, size >= 1], got [\"hidden\",0]", "/model/params/0/dims"},
      {"NegativeAxis", with("/mesh/0/1", -2), "R005", "axes are pairs [name, size >= 0], got [\"dp\",-2]",
       "/mesh"},
      {"AxisWithoutName", with("/mesh/0/0", ""), "R005", "an axis of the mesh is called \"\"", "/mesh/0",
       name_of_axis},
      {"AxisWithComma", with("/mesh/1/0", "a,b"), "R005", "an axis of the mesh is called \"a,b\"", "/mesh/1",
       name_of_axis},
      {"AxisOfTwoLines", with("/mesh/0/0", "d\np"), "R005", "an axis of the mesh is called \"d\\np\"",
       "/mesh/0", name_of_axis},
      {"AxisWithDigitFirst", with("/mesh/0/0", "2d"), "R005", "an axis of the mesh is called \"2d\"",
       "/mesh/0", name_of_axis},
      {"AxisOfLongName", with("/mesh/0/0", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"), "R005",
       "an axis of the mesh is called \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"", "/mesh/0", name_of_axis},
      {"AxisTwice", with("/mesh/1/0", "dp"), "R006", "axis 'dp' stands twice", "/mesh"},
      {"MeshBeyond64Bits", with("/mesh", Json::parse(R"([["a", 4294967296], ["b", 4294967296], ["dp", 0]])")),
       "R005", "mesh a 4294967296 has more than 1048576 ranks", "/mesh", "make the axes smaller"},
      {"MeshOfManyRanks", with("/mesh", Json::parse(R"([["a", 1024], ["dp", 0], ["b", 1025]])")), "R005",
       "mesh a 1024 x dp 0 x b 1025 has more than 1048576 ranks", "/mesh", "make the axes smaller"},
      {"AxisBeyond63Bits", with("/mesh/0/1", uint64_t{1} << 63), "R005",
       "axes are pairs [name, size >= 0], got [\"dp\",9223372036854775808]", "/mesh"},
      {"MicrobatchesBeyond32Bits", with("/microbatches", (int64_t{1} << 32) + 1), "R005",
       "microbatches = 4294967297: must be at most 16777216", "/microbatches"},
      {"ShardsBeyond32Bits", with("/numerics/shards", int64_t{1} << 32), "R005",
       "shards = 4294967296: must be at most 16777216", "/numerics/shards"},
      {"StepsBeyond63Bits", with("/steps", uint64_t{1} << 63), "R005",
       "steps = 9223372036854775808: must be at most 9223372036854775807", "/steps"},
      {"DimBeyond63Bits", with("/model/params/0/dims/1/1", UINT64_MAX), "R005",
       "dims are pairs [name, size >= 1], got [\"hidden\",18446744073709551615]", "/model/params/0/dims"},
      {"TensorBeyondAll",
       with("/model/params/0/dims", Json::parse(R"([["a", 16777216], ["b", 16777216], ["c", 2]])")), "R005",
       "a tensor [a 16777216, b 16777216, c 2] has more than 281474976710656 elements",
       "/model/params/0/dims"},
      {"AttrBeyond63Bits", with("/model/ops/2/attrs/eps", UINT64_MAX), "R005",
       "eps = 18446744073709551615: must be at most 9223372036854775807", "/model/ops/2/attrs/eps"},
      {"NewerFormat", with("/tenon", 2), "R005", "format 2 is newer than this tenon reads (1)", "/tenon"},
      {"OldFormat", with("/tenon", 0), "R005", "tenon = 0: must be at least 1", "/tenon"},
      // unknown words
      {"Precision", with("/precision", "f16"), "R005", "precision 'f16' is not supported", "/precision",
       "f32 or f64"},
      {"Mode", with("/numerics/mode", "quick"), "R005", "mode 'quick' is not known", "/numerics/mode",
       "fast or exact"},
      {"InitKind", with("/model/params/1/init/kind", "one"), "R005", "init kind 'one' is not known",
       "/model/params/1/init", "normal, uniform, zeros or ones"},
      {"LrKind", with("/lr/kind", "linear"), "R005", "learning rate 'linear' is not known", "/lr/kind",
       "constant, cosine or wsd"},
      {"Index", with("/model/ops/1/index", "j"), "R005", "the index is called 'i'", "/model/ops/1/index"},
      {"NestedRepeat", with("/model/ops/1/ops/0", document()["model"]["ops"][1]), "R005",
       "a repeat inside a repeat is not supported", "/model/ops/1/ops/0", "unroll the inner one"},
      {"Fusion", with("/fusion", 3), "R003", "fusion: expected true or false, got 3", "/fusion"},
  };
}

class WrongDocument : public testing::TestWithParam<Wrong> {};

TEST_P(WrongDocument, IsRefusedWithCausePlaceAndFix) {
  const auto recipe = read_recipe(GetParam().document);
  ASSERT_FALSE(recipe.ok());
  EXPECT_EQ(recipe.error().code, GetParam().code);
  EXPECT_EQ(recipe.error().cause, GetParam().cause);
  EXPECT_EQ(recipe.error().place, GetParam().place);
  EXPECT_EQ(recipe.error().fix, GetParam().fix);
  EXPECT_EQ(recipe.error().kind, TENON_E_RECIPE);
}

INSTANTIATE_TEST_SUITE_P(Recipe, WrongDocument, testing::ValuesIn(wrong_documents()),
                         [](const auto& info) { return info.param.name; });

TEST(RecipeTest, ExactShardsMustBeAPowerOfTwo) {
  Json wrong = with("/numerics", {{"mode", "exact"}, {"shards", 6}});
  EXPECT_EQ(read_recipe(wrong).error().cause, "shards = 6: must be a power of two");
  EXPECT_EQ(read_recipe(wrong).error().place, "/numerics/shards");
  EXPECT_EQ(read_recipe(wrong).error().code, "R005");
  wrong["numerics"]["mode"] = "fast";
  EXPECT_TRUE(read_recipe(wrong).ok());
}

TEST(RecipeTest, OverridesOfKernelsArriveByKind) {
  Json given = document();
  given["kernels"] = Json::parse(R"({"plugin": "kernels/a", "overrides": {
      "gelu": {"plugin": "kernels/a", "options": {"isa": "scalar"}}, "gelu_dgrad": {"plugin": "kernels/b"}}})");
  const auto recipe = read_recipe(given);
  ASSERT_TRUE(recipe.ok()) << recipe.error().text();
  EXPECT_EQ(recipe->kernels.base.id, "kernels/a");
  ASSERT_EQ(recipe->kernels.overrides.size(), 2u);
  EXPECT_EQ(recipe->kernels.overrides.at("gelu").options, R"({"isa":"scalar"})");
  EXPECT_EQ(recipe->kernels.overrides.at("gelu").pointer, "/kernels/overrides/gelu/options");
  EXPECT_EQ(recipe->kernels.overrides.at("gelu_dgrad").id, "kernels/b");
}

TEST(RecipeTest, EveryFieldArrives) {
  const auto recipe = read_recipe(document());
  ASSERT_TRUE(recipe.ok()) << recipe.error().text();
  EXPECT_EQ(recipe->name, "tiny");
  EXPECT_EQ(recipe->seed, 1337u);
  EXPECT_EQ(recipe->precision, Dtype::f64);
  EXPECT_FALSE(recipe->exact);
  EXPECT_EQ(recipe->steps, 100);
  EXPECT_EQ(recipe->batch, 8);
  EXPECT_EQ(recipe->microbatches, 2);
  EXPECT_EQ(recipe->context, 32);
  EXPECT_EQ(recipe->model.params[0].dims, (Dims{{"vocab", 16}, {"hidden", 4}}));
  EXPECT_EQ(recipe->model.params[0].init.kind, Init::Kind::normal);
  EXPECT_EQ(recipe->model.params[0].init.scale, 0.02);
  EXPECT_EQ(recipe->model.ops[1].repeat->params[0].init.kind, Init::Kind::uniform);
  EXPECT_EQ(std::get<double>(recipe->model.ops[2].attrs.at("eps")), 1e-5);
  EXPECT_EQ(recipe->data.id, "data/text");
  EXPECT_EQ(recipe->data.options, R"({"files":["a.txt"]})");
  EXPECT_EQ(recipe->data.pointer, "/data/options");
  EXPECT_EQ(recipe->valid, 0.05);
  EXPECT_EQ(recipe->clip, 1.0);
  EXPECT_EQ(recipe->mesh.text(), "dp 2 x tp 0");
  EXPECT_EQ(recipe->strategies[0].id, "parallel/data");
  EXPECT_EQ(recipe->kernels.base.options, "{}");
  EXPECT_EQ(recipe->comm.options, R"({"progress":true})");
  EXPECT_EQ(recipe->eval_every, 50);
  EXPECT_EQ(recipe->eval_batches, 4);
  EXPECT_EQ(recipe->save_every, 25);
  EXPECT_EQ(recipe->save_keep, 3);
  EXPECT_EQ(recipe->log_every, 10);
  EXPECT_EQ(recipe->sinks[0].id, "sink/jsonl");
}

TEST(RecipeTest, TheDocumentIsKeptAsCanonicalText) {
  EXPECT_EQ(read_recipe(document())->document, document().dump());
}

TEST(RecipeTest, AGroupsOptionsReplaceTheCommonOnes) {
  const auto recipe = read_recipe(document());
  ASSERT_EQ(recipe->groups.size(), 1u);
  EXPECT_EQ(recipe->groups[0].match, (std::vector<std::string>{"*.bias", "*norm*"}));
  EXPECT_EQ(recipe->groups[0].options, R"({"beta2":0.95,"weight_decay":0.0})");
  EXPECT_EQ(recipe->groups[0].pointer, "/optimizer/groups/0/options");
}

TEST(RecipeTest, DuplicateKeysAreRefusedAtAnyDepthButNotAcrossObjects) {
  const auto top = parse_json(R"({"a": 1, "a": 2})", "recipe.json");
  ASSERT_FALSE(top.ok());
  EXPECT_EQ(top.error().code, "R010");
  EXPECT_EQ(top.error().cause, "key 'a' stands twice in one object");
  EXPECT_EQ(top.error().place, "recipe.json");
  EXPECT_EQ(parse_json(R"({"a": [{"b": {"c": 1, "c": 1}}]})", "").error().cause,
            "key 'c' stands twice in one object");
  EXPECT_TRUE(parse_json(R"({"a": {"b": 1}, "c": {"b": 1}, "d": [{"b": 1}, {"b": 2}]})", "").ok());
}

TEST(RecipeTest, JsonOverSixtyFourLevelsOrWithTrailingTextIsRefused) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse_json(nested(64), "").ok());
  EXPECT_EQ(parse_json(nested(66), "").error().cause, "JSON nested deeper than 64");
  EXPECT_EQ(parse_json("{} x", "").error().code, "R010");
}

TEST(RecipeTest, DamagedJsonIsToldWithLineAndColumnAndNoNameOfAnException) {
  const std::string cause = parse_json("{\n \"a\": 1,\n x}", "").error().cause;
  EXPECT_TRUE(cause.starts_with("not valid JSON: line 3, column 2: ")) << cause;
  for (const char* text : {"", "[1e999]", "\"\xff\"", "{} x"})
    EXPECT_EQ(parse_json(text, "").error().cause.find("exception"), std::string::npos) << text;
}

// -- learning rate ----------------------------------------------------------------------------------

LearningRate lr_of(const Json& lr) { return read_recipe(with("/lr", lr)).value().lr; }

TEST(LearningRateTest, ConstantWarmsUpLinearlyAndStays) {
  const LearningRate lr = lr_of({{"kind", "constant"}, {"value", 0.4}, {"warmup", 4}});
  EXPECT_DOUBLE_EQ(lr.at(1), 0.1);
  EXPECT_DOUBLE_EQ(lr.at(4), 0.4);
  EXPECT_DOUBLE_EQ(lr.at(5), 0.4);
  EXPECT_DOUBLE_EQ(lr.at(1'000'000), 0.4);
  EXPECT_DOUBLE_EQ(lr_of({{"kind", "constant"}, {"value", 0.4}, {"warmup", 0}}).at(1), 0.4);
}

TEST(LearningRateTest, CosineFallsFromPeakToFloorAndStays) {
  const LearningRate lr =
      lr_of({{"kind", "cosine"}, {"peak", 1.0}, {"floor", 0.2}, {"warmup", 10}, {"steps", 110}});
  EXPECT_DOUBLE_EQ(lr.at(5), 0.5);
  EXPECT_DOUBLE_EQ(lr.at(10), 1.0);
  EXPECT_NEAR(lr.at(35), 0.6 + 0.4 * std::sqrt(0.5), 1e-15);  // a quarter: cos(pi / 4)
  EXPECT_NEAR(lr.at(60), 0.6, 1e-15);
  EXPECT_NEAR(lr.at(110), 0.2, 1e-15);
  EXPECT_NEAR(lr.at(500), 0.2, 1e-15);
}

TEST(LearningRateTest, WsdHoldsThePeakAndDecaysLinearlyAtTheEnd) {
  const LearningRate lr =
      lr_of({{"kind", "wsd"}, {"peak", 1.0}, {"floor", 0.2}, {"warmup", 10}, {"steps", 100}, {"decay", 20}});
  EXPECT_DOUBLE_EQ(lr.at(1), 0.1);
  EXPECT_DOUBLE_EQ(lr.at(10), 1.0);
  EXPECT_DOUBLE_EQ(lr.at(80), 1.0);
  EXPECT_DOUBLE_EQ(lr.at(90), 0.6);
  EXPECT_NEAR(lr.at(100), 0.2, 1e-15);
  EXPECT_NEAR(lr.at(200), 0.2, 1e-15);
  const LearningRate flat =
      lr_of({{"kind", "wsd"}, {"peak", 1.0}, {"floor", 0.2}, {"warmup", 0}, {"steps", 100}, {"decay", 0}});
  EXPECT_DOUBLE_EQ(flat.at(100), 1.0);
}

// -- patterns, mesh ---------------------------------------------------------------------------------

TEST(PatternTest, AStarIsAnyRunOfCharactersAndAllElseIsItself) {
  EXPECT_TRUE(matches_pattern("*.bias", "h.0.fc.bias"));
  EXPECT_TRUE(matches_pattern("*norm*", "norm"));
  EXPECT_TRUE(matches_pattern("h.*.w*t", "h.11.fc.weight"));
  EXPECT_TRUE(matches_pattern("*", ""));
  EXPECT_TRUE(matches_pattern("", ""));
  EXPECT_FALSE(matches_pattern("*.bias", "h.0.bias.weight"));
  EXPECT_FALSE(matches_pattern("bias", "h.bias"));
  EXPECT_FALSE(matches_pattern("h.?", "h.0"));
  EXPECT_FALSE(matches_pattern("", "x"));
  EXPECT_FALSE(matches_pattern("a.b", "axb"));
  EXPECT_TRUE(matches_pattern("**a*", "ba"));
  EXPECT_FALSE(matches_pattern("*ab", "aab.c"));
  std::string many;  // which would take ages if each star tried every length
  for (int i = 0; i < 40; ++i) many += "*a";
  EXPECT_FALSE(matches_pattern(many + "b", std::string(200, 'a')));
  EXPECT_TRUE(matches_pattern(many, std::string(200, 'a')));
}

TEST(MeshOfRecipe, AnAxisOfSizeZeroTakesWhatIsLeft) {
  EXPECT_EQ(resolve_mesh(Mesh{{{"dp", 2}, {"tp", 0}}}, 8)->text(), "dp 2 x tp 4");
  EXPECT_EQ(resolve_mesh(Mesh{{{"dp", 0}}}, 1)->text(), "dp 1");
  EXPECT_EQ(resolve_mesh(Mesh{{{"dp", 2}, {"tp", 2}}}, 4)->text(), "dp 2 x tp 2");
  EXPECT_EQ(resolve_mesh(Mesh{}, 1)->world(), 1);
}

TEST(MeshOfRecipe, AMeshThatDoesNotMultiplyToTheRanksIsP001) {
  const auto fixed = resolve_mesh(Mesh{{{"dp", 2}, {"tp", 2}}}, 6);
  ASSERT_FALSE(fixed.ok());
  EXPECT_EQ(fixed.error().code, "P001");
  EXPECT_EQ(fixed.error().cause, "mesh dp 2 x tp 2 does not multiply to the 6 ranks started");
  EXPECT_EQ(fixed.error().place, "/mesh");
  EXPECT_EQ(fixed.error().fix, "start 4 ranks, or change the mesh");
  const auto open = resolve_mesh(Mesh{{{"dp", 0}, {"tp", 4}}}, 6);
  ASSERT_FALSE(open.ok());
  EXPECT_EQ(open.error().cause, "mesh dp 0 x tp 4 does not multiply to the 6 ranks started");
  const auto two = resolve_mesh(Mesh{{{"dp", 0}, {"tp", 0}}}, 4);
  ASSERT_FALSE(two.ok());
  EXPECT_EQ(two.error().cause, "mesh dp 0 x tp 0: only one axis may be 0");
}

// -- from the recipe to the graph -------------------------------------------------------------------

TEST(ModelTest, RepeatsAreUnrolledWithParametersAndCarriedValues) {
  const auto forward = build_forward(read_recipe(document()).value(), 2, 3, true);
  ASSERT_TRUE(forward.ok()) << forward.error().text();
  const Graph& graph = forward->graph;
  ASSERT_EQ(graph.ops().size(), 1u + 2u * 2u + 2u + 1u);
  EXPECT_EQ(graph.value(graph.op(1).in[1]).name, "h.0.w");
  EXPECT_EQ(graph.value(graph.op(3).in[1]).name, "h.1.w");
  EXPECT_EQ(graph.op(3).in[0], graph.op(2).out[0])
      << "the second round enters with what the first one leaves";
  EXPECT_EQ(graph.op(5).in[0], graph.op(4).out[0]);
  EXPECT_EQ(graph.value(graph.op(3).out[0]).layer, 1);
  EXPECT_EQ(text(graph, forward->logits), "logits f64[batch 2, seq 3, vocab 16]");
  EXPECT_EQ(forward->loss_op, 7u);
  EXPECT_EQ(build_forward(read_recipe(document()).value(), 2, 3, false)->loss_op, kNone);
}

TEST(ModelTest, TheSizeOfAMicrobatchIsBoundedNotThatOfTheBatch) {
  const Recipe recipe = read_recipe(with("/model/ops/1/repeat", 300)).value();
  const int64_t huge = int64_t{1} << 39;
  const auto forward = build_forward(recipe, huge, recipe.context, true);
  EXPECT_TRUE(forward.ok()) << forward.error().text();
  const auto joint = build_joint(recipe, Mesh(), ProgramKind::train, huge, {});
  ASSERT_FALSE(joint.ok());
  EXPECT_EQ(joint.error().code, "R014") << joint.error().text();
}

TEST(ModelTest, ARoundMayHaveSeveralLayers) {
  const auto recipe = read_recipe(with("/model/ops/1/layers", {1, 1}));
  ASSERT_TRUE(recipe.ok()) << recipe.error().text();
  const auto forward = build_forward(*recipe, 2, 3, true);
  ASSERT_TRUE(forward.ok()) << forward.error().text();
  const Graph& graph = forward->graph;
  std::string layers;
  for (const Op& op : graph.ops()) layers += std::to_string(graph.value(op.out[0]).layer) + " ";
  EXPECT_EQ(layers, "-1 0 1 2 3 -1 -1 -1 ");
  EXPECT_EQ(graph.value(*graph.find("h.1.w")).layer, 2);
  EXPECT_EQ(graph.value(*graph.find("wte")).layer, -1);
}

TEST(ModelTest, LayersThatShareOutOtherOpsThanTheRoundsAreRefused) {
  for (const Json& wrong : {Json{1}, Json{1, 2}, Json{2, 0}, Json{3, -1}}) {
    const auto recipe = read_recipe(with("/model/ops/1/layers", wrong));
    ASSERT_FALSE(recipe.ok()) << wrong;
    EXPECT_EQ(recipe.error().code, "R005");
    EXPECT_EQ(recipe.error().cause,
              "layers = " + wrong.dump() + " shares out other than the 2 ops of a round");
    EXPECT_EQ(recipe.error().place, "/model/ops/1/layers");
  }
  const auto text = read_recipe(with("/model/ops/1/layers", {"1", 1}));
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().cause, "layers lists numbers of ops, got \"1\"");
}

void expect_model_error(const Json& wrong, const std::string& code, const std::string& cause,
                        const std::string& place) {
  const auto recipe = read_recipe(wrong);
  ASSERT_TRUE(recipe.ok()) << recipe.error().text();
  const auto forward = build_forward(*recipe, 2, 3, true);
  ASSERT_FALSE(forward.ok());
  EXPECT_EQ(forward.error().code, code);
  EXPECT_EQ(forward.error().cause, cause);
  EXPECT_EQ(forward.error().place, place);
}

TEST(ModelTest, MistakesNameTheOp) {
  expect_model_error(with("/model/ops/0/in/1", "wet"), "R007", "embedding: 'wet' is not defined here",
                     "/model/ops/0");
  expect_model_error(with("/model/ops/0/out", Json::array()), "R006", "embedding names no output",
                     "/model/ops/0");
  expect_model_error(with("/model/ops/0/out", {"x", "z"}), "R006", "embedding has 1 outputs", "/model/ops/0");
  expect_model_error(with("/model/ops/2/out/0", "x"), "R006", "value 'x' is defined twice", "/model/ops/2");
  Json twice = with("/model/ops/1/params/0/name", "h.w");
  twice["model"]["ops"][1]["ops"][0]["in"][1] = "h.w";
  expect_model_error(twice, "R006", "parameter 'h.w' is defined twice", "/model/ops/1/params");
  expect_model_error(with("/model/ops/1/carry/0/1", "z"), "R007",
                     "carry [x, z]: the one must exist outside, the other inside", "/model/ops/1");
  expect_model_error(with("/model/ops/0/op", "embed"), "G003", "unknown op 'embed'", "/model/ops/0");
  expect_model_error(without("/model/ops/2", "attrs"), "G004", "rmsnorm: missing attribute 'eps'",
                     "/model/ops/2");
  expect_model_error(with("/model/ops/2/attrs/epsilon", 1), "G004", "rmsnorm: unknown attribute 'epsilon'",
                     "/model/ops/2");
  expect_model_error(with("/model/ops/2/attrs/eps", 0), "R005",
                     "rmsnorm: attribute 'eps' = 0 must be above 0", "/model/ops/2");
  expect_model_error(with("/model/logits", "y"), "R007", "model.logits names 'y', which no op defines",
                     "/model/logits");
  expect_model_error(with("/model/ops/3/in/1", "h.{i}.w"), "R007", "linear: 'h.{i}.w' is not defined here",
                     "/model/ops/3");
}

// The model with an op of its own behind the embedding x[batch 2, seq 3, hidden 4].
Json with_op(const Json& op) {
  Json out = document();
  auto& ops = out["model"]["ops"];
  ops.insert(ops.begin() + 1, op);
  return out;
}

TEST(ModelTest, AttributesKeepToTypeAndRangeOfTheirRow) {
  const auto op = [](const char* kind, const Json& in, const Json& out, const Json& attrs) {
    return with_op({{"op", kind}, {"in", in}, {"out", out}, {"attrs", attrs}});
  };
  const auto dropout = [&](const Json& p, const Json& key) {
    return op("dropout", {"x", "samples", "positions", "step"}, {"d"}, {{"p", p}, {"key", key}});
  };
  const auto rope = [&](const Json& theta, const Json& inverse) {
    return op("rope", {"x", "positions"}, {"d"}, {{"theta", theta}, {"inverse", inverse}});
  };
  const auto route = [&](int k, int group) {
    return op("route_topk", {"x", "samples"}, {"gate", "expert", "slot", "aux"},
              {{"k", k}, {"group", group}, {"capacity", 1}, {"renormalise", 0}, {"aux", 0.0}});
  };
  const std::vector<std::tuple<Json, const char*, const char*>> cases{
      {dropout(2, 1), "R005", "dropout: attribute 'p' = 2 must be below 1"},
      {dropout(-0.5, 1), "R005", "dropout: attribute 'p' = -0.5 must be at least 0"},
      {rope(-1, 0), "R005", "rope: attribute 'theta' = -1 must be above 0"},
      {rope(100, 0.5), "R003", "rope: attribute 'inverse' must be an integer, got 0.5"},
      {rope(100, 2), "R005", "rope: attribute 'inverse' = 2 must be at most 1"},
      {op("softcap", {"x"}, {"d"}, {{"cap", 0}}), "R005", "softcap: attribute 'cap' = 0 must be above 0"},
      {route(0, 3), "R005", "route_topk: attribute 'k' = 0 must be at least 1"},
      {route(5, 3), "R005", "route_topk: choice 5 must be at most hidden 4"},
      {route(2, 2), "R005", "route_topk: seq 3 must be divisible by 'group' = 2"}};
  for (const auto& [wrong, code, cause] : cases) expect_model_error(wrong, code, cause, "/model/ops/1");
  EXPECT_TRUE(build_forward(read_recipe(rope(100, 1)).value(), 2, 3, true).ok());
}

// The key is overwritten by one of the recipe's seed: what is written must be an integer all the same.
TEST(ModelTest, AKeyOfRandomNumbersIsAnInteger) {
  expect_model_error(with_op({{"op", "dropout"},
                              {"in", {"x", "samples", "positions", "step"}},
                              {"out", {"d"}},
                              {"attrs", {{"p", 0.5}, {"key", 0.25}}}}),
                     "R003", "dropout: attribute 'key' must be an integer, got 0.25", "/model/ops/1");
}

TEST(ModelTest, ASizeThatNothingDividesIsTheOperands) {
  Json odd = with_op({{"op", "rope"},
                      {"in", {"x", "positions"}},
                      {"out", {"d"}},
                      {"attrs", {{"theta", 100.0}, {"inverse", 0}}}});
  odd["model"]["params"][0]["dims"][1][1] = 3;
  expect_model_error(odd, "G002",
                     "rope(x f64[batch 2, seq 3, hidden 3], positions i32[batch 2, seq 3]): hidden 3 must be "
                     "divisible by 2",
                     "/model/ops/1");
}

TEST(ModelTest, OperandsThatDoNotFitShowShapesAndTheRule) {
  expect_model_error(
      with("/model/ops/0/in", {"wte", "wte"}), "G002",
      "embedding(wte f64[vocab 16, hidden 4], wte f64[vocab 16, hidden 4]): operand 'ids' is f64",
      "/model/ops/0");
  expect_model_error(with("/model/params/1/dims/0/1", 5), "G002",
                     "rmsnorm(1/y f64[batch 2, seq 3, hidden 4], norm f64[hidden 5]): hidden is 4 and 5",
                     "/model/ops/2");
  expect_model_error(
      with("/model/ops/3/in/1", "norm"), "G002",
      "cross_entropy(logits f64[batch 2, seq 3], targets i32[batch 2, seq 3]): wrong number of dimensions",
      "/model/logits");
}

}  // namespace
}  // namespace tenon
