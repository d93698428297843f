// What the vocabulary makes: defaults, overrides before evaluation, deterministic Lua, models.
#include <algorithm>
#include <set>

#include "graph/recipe.h"
#include "support.h"

namespace tenon {
namespace {

TEST(Run, defaults_are_filled) {
  const Json recipe = resolve(tiny_run()).recipe;
  EXPECT_EQ(recipe["name"], "r");
  EXPECT_EQ(recipe["mesh"], Json::parse(R"([["dp", 0]])"));
  EXPECT_EQ(recipe["strategies"], Json::parse(R"([{"plugin": "parallel/data", "options": {}}])"));
  EXPECT_EQ(recipe["kernels"], Json::parse(R"({"plugin": "kernels/cpu", "options": {}})"));
  EXPECT_EQ(recipe["comm"], Json::parse(R"({"plugin": "comm/ucx", "options": {}})"));
  EXPECT_EQ(recipe["numerics"], Json::parse(R"({"mode": "fast", "shards": 8})"));
  EXPECT_EQ(recipe["precision"], "f32");
  EXPECT_EQ(recipe["microbatches"], 1);
  EXPECT_EQ(recipe["eval"], Json::parse(R"({"every": 0, "batches": 8})"));
  EXPECT_EQ(recipe["save"], Json::parse(R"({"every": 10, "keep": 2})"));
  EXPECT_EQ(recipe["log"],
            Json::parse(R"({"every": 10, "sinks": [{"plugin": "sink/jsonl", "options": {}}]})"));
  EXPECT_EQ(recipe["lr"], Json::parse(R"({"kind": "constant", "value": 0.1, "warmup": 0})"));
}

TEST(Run, numerics_is_a_word_or_a_table) {
  EXPECT_EQ(resolve(tiny_run("numerics = \"exact\",")).recipe["numerics"],
            Json::parse(R"({"mode": "exact", "shards": 8})"));
  EXPECT_EQ(resolve(tiny_run("numerics = { mode = \"exact\", shards = 4 },")).recipe["numerics"],
            Json::parse(R"({"mode": "exact", "shards": 4})"));
}

TEST(Run, kernels_are_a_plugin_or_one_with_others_for_some_kinds) {
  EXPECT_EQ(resolve(tiny_run("kernels = t.plugin(\"kernels/cpu\", { isa = \"avx2\" }),")).recipe["kernels"],
            Json::parse(R"({"plugin": "kernels/cpu", "options": {"isa": "avx2"}})"));
  EXPECT_EQ(resolve(tiny_run("kernels = { \"kernels/cpu\", overrides = { gelu = \"kernels/a\",\n"
                             "gelu_dgrad = t.plugin(\"kernels/b\", { x = 1 }) } },"))
                .recipe["kernels"],
            Json::parse(R"({"plugin": "kernels/cpu", "options": {}, "overrides": {
                "gelu": {"plugin": "kernels/a", "options": {}},
                "gelu_dgrad": {"plugin": "kernels/b", "options": {"x": 1}}}})"));
}

TEST(Run, schedule_lasts_as_long_as_the_run_unless_told) {
  const auto lr_of = [](const std::string& schedule) {
    return resolve(
               "local t = require \"tenon\"\nreturn t.run { steps = 50, batch = 1, context = 4,\n"
               "model = t.models.mlp { layers = 1, width = 4, vocab = 8 },\n"
               "data = t.data.text { file = \"x\" }, optim = t.optim.sgd { lr = " +
               schedule + " } }")
        .recipe["lr"];
  };
  EXPECT_EQ(lr_of("t.lr.cosine { peak = 1 }")["steps"], 50);
  EXPECT_EQ(lr_of("t.lr.cosine { peak = 1, steps = 20 }")["steps"], 20);
  EXPECT_EQ(
      lr_of("t.lr.wsd { peak = 1, decay = 5 }"),
      Json::parse(R"({"kind": "wsd", "peak": 1.0, "floor": 0.0, "warmup": 0, "steps": 50, "decay": 5})"));
}

TEST(Mesh, axes_by_name_have_the_usual_order_and_pairs_their_own) {
  EXPECT_EQ(resolve(tiny_run("mesh = t.mesh { tp = 4, dp = 0, pp = 2 },")).recipe["mesh"],
            Json::parse(R"([["dp", 0], ["pp", 2], ["tp", 4]])"));
  EXPECT_EQ(resolve(tiny_run("mesh = t.mesh { { \"tp\", 4 }, { \"x\", 2 } },")).recipe["mesh"],
            Json::parse(R"([["tp", 4], ["x", 2]])"));
}

TEST(Optimizer, groups_and_options_stay_apart) {
  const std::string source =
      "local t = require \"tenon\"\nreturn t.run { steps = 50, batch = 1, context = 4,\n"
      "model = t.models.mlp { layers = 1, width = 4, vocab = 8 }, data = t.data.text { file = \"x\" },\n"
      "optim = t.optim.plugin(\"optimizer/lion\", { lr = 1, beta = 0.5, clip = 2,\n"
      "groups = { { match = { \"*.bias\" }, beta = 0 } } }) }";
  EXPECT_EQ(resolve(source).recipe["optimizer"],
            Json::parse(R"({"plugin": "optimizer/lion", "options": {"beta": 0.5}, "clip": 2.0,
                            "groups": [{"match": ["*.bias"], "options": {"beta": 0}}]})"));
}

TEST(Parameters, overrides_arrive_before_evaluation) {
  const std::string source = tiny_run(
      "microbatches = 2 * p.n, seed = p.big, name = p.name .. \"!\", save = p.save and "
      "{ every = 1 } or { every = 0 }, precision = p.precision,",
      "local p = t.params { n = t.integer { 3 }, big = t.count { \"64Ki\" },\n"
      "name = t.string { \"a\" }, save = t.boolean { false },\n"
      "precision = t.choice { \"f32\", of = { \"f32\", \"f64\" } } }");
  const Json by_default = resolve(source).recipe;
  EXPECT_EQ(by_default["microbatches"], 6);
  EXPECT_EQ(by_default["seed"], 65536);
  const Json changed = resolve(source, {"n=4", "big=10M", "name=b=c", "save=true", "precision=f64"}).recipe;
  EXPECT_EQ(changed["microbatches"], 8);
  EXPECT_EQ(changed["seed"], 10'000'000);
  EXPECT_EQ(changed["name"], "b=c!");
  EXPECT_EQ(changed["save"]["every"], 1);
  EXPECT_EQ(changed["precision"], "f64");
}

// A recipe's own paths start at its folder; one from the command line is meant as the caller's shell means
// it.
TEST(Parameters, files_on_the_command_line_start_at_the_current_folder) {
  const std::string source =
      tiny_run("name = p.file,", "local p = t.params { file = t.file { \"beside.txt\" } }");
  const std::filesystem::path here = std::filesystem::current_path();
  EXPECT_EQ(resolve(source).recipe["name"], "beside.txt");
  EXPECT_EQ(resolve(source, {"file=a/../b.txt"}).recipe["name"], (here / "b.txt").string());
  EXPECT_EQ(resolve(source, {"file=/c.txt"}).recipe["name"], "/c.txt");
}

TEST(Parameters, counts_take_units_and_refuse_parts) {
  const std::string source = tiny_run("seed = p.n,", "local p = t.params { n = t.count { 1 } }");
  const std::vector<std::pair<std::string, int64_t>> good{
      {"7", 7},      {"64Ki", 65536},    {"2Mi", 2 << 20},         {"1.5K", 1500}, {"10B", 10'000'000'000},
      {"1e3", 1000}, {"0.5Gi", 1 << 29}, {"1T", 1'000'000'000'000}};
  for (const auto& [text, value] : good)
    EXPECT_EQ(resolve(source, {"n=" + text}).recipe["seed"], value) << text;
  for (const char* text : {"1.5", "-1", "1k", "Ki", "", "0x10", "1.0001K", "1e400", "10 M"}) {
    EXPECT_NE(message_of(source, {"n=" + std::string(text)}).find("'n' wants a whole number >= 0"),
              std::string::npos)
        << text;
  }
}

TEST(Parameters, are_described_for_help) {
  const Json described =
      resolve(tiny_run("", "local p = t.params { lr = t.number { 0.5, min = 0, max = 1, doc = \"rate\" } }"),
              {"lr=0.25"})
          .parameters;
  EXPECT_EQ(described,
            Json::parse(R"([{"name": "lr", "kind": "number", "default": 0.5, "value": 0.25, "min": 0.0,
                                        "max": 1.0, "doc": "rate"}])"));
}

TEST(Sandbox, pairs_goes_in_sorted_order) {
  const std::string source =
      tiny_run("name = order,",
               "local order = \"\"\nfor k in pairs { b = 1, a = 1, [2] = 1, [10] = 1, [1.5] = 1, "
               "[true] = 1, z9 = 1, z10 = 1 } do order = order .. tostring(k) .. \" \" end");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(resolve(source).recipe["name"], "true 1.5 2 10 a b z10 z9 ");
}

TEST(Sandbox, text_of_a_table_has_no_address) {
  EXPECT_EQ(resolve(tiny_run("name = tostring({}) .. string.format(\" %s %d\", print, 3),")).recipe["name"],
            "table function 3");
}

TEST(Sandbox, sort_is_stable) {
  const std::string source =
      tiny_run("name = out,",
               "local list, out = {}, \"\"\n"
               "for i = 1, 300 do list[i] = { key = i % 3, at = i } end\n"
               "table.sort(list, function(a, b) return a.key < b.key end)\n"
               "for i = 2, 300 do assert(list[i - 1].key < list[i].key or (list[i - 1].key == "
               "list[i].key and list[i - 1].at < list[i].at)) end\n"
               "local words = { \"b\", \"c\", \"a\" }\ntable.sort(words)\n"
               "out = table.concat(words)");
  EXPECT_EQ(resolve(source).recipe["name"], "abc");
}

TEST(Sandbox, instrumented_tables_keep_the_programs_meaning) {
  // Every way in which a constructor can stand: as argument, indexed, compared, empty, in long strings.
  const std::string source = tiny_run(
      "name = out,",
      "local function f(x) return function(y) return #x * 10 + #y end end\n"
      "local function id(...) return ... end\n"
      "local s = [[ { not = a, table } ]] --[==[ { ]] } ]==] -- { comment\n"
      "local out = tostring(f{1, 2}{3}) .. #{id(1, 2, 3)} .. ({5, 6})[2] .. #{} .. #{n = 1, 2; 3,} .. #s\n"
      "out = out .. select('#', id({}, {})) .. (#id{ {1}, {{2}} }) .. (\"%d\"):format(#{ function(a, b) "
      "local c = {1, 2}\n"
      "  return c, a, b end, '}' })\n"
      "local function many(n) if n == 0 then return end; if n == 1 then return 7, 8 else return many(n - 1) "
      "end end\n"
      "out = out .. select('#', many(0)) .. select('#', many(3)) .. (many(2)) .. #{ (function() return {1, "
      "2, 3} end)() }\n"
      "local m = { [\"a b\"] = 1, ['c'] = 2, [1 + 2] = 3, d = { e = { 4 } } }\n"
      "out = out .. m[\"a b\"] .. m.c .. m[3] .. m.d.e[1]");
  EXPECT_EQ(resolve(source).recipe["name"], "2136022022202711234");
}

TEST(Sandbox, print_goes_to_the_messages) {
  EXPECT_EQ(resolve(tiny_run("", "print(\"width\", 3, nil, {})")).messages, "width\t3\tnil\ttable\n");
}

TEST(Sandbox, environment_of_one_recipe_is_fresh) {
  const RecipeFolder folder;
  folder.write("r.lua", tiny_run("name = (require \"part\").name,"));
  folder.write("part.lua", "return { name = \"from part\" }\n");
  const auto recipe = evaluate_recipe(request_for(folder.at("r.lua")));
  ASSERT_TRUE(recipe.ok()) << recipe.error().text();
  EXPECT_EQ(recipe->recipe["name"], "from part");
}

// ---- models ----

Json model_of(const std::string& expression) {
  return resolve(
             "local t = require \"tenon\"\nlocal nn = t.nn\nreturn t.run { steps = 1, batch = 1, context = "
             "4,\n"
             "data = t.data.text { file = \"x\" }, optim = t.optim.sgd { lr = 1 }, model = " +
             expression + " }")
      .recipe["model"];
}

int64_t num_parameters(const Json& params, int64_t times = 1) {
  int64_t total = 0;
  for (const Json& param : params) {
    int64_t size = times;
    for (const Json& dim : param["dims"]) size *= dim[1].get<int64_t>();
    total += size;
  }
  return total;
}

int64_t num_parameters_of_model(const Json& model) {
  int64_t total = num_parameters(model["params"]);
  for (const Json& op : model["ops"]) {
    if (op.contains("repeat")) total += num_parameters(op["params"], op["repeat"].get<int64_t>());
  }
  return total;
}

TEST(Model, gpt2_has_the_parameters_of_the_published_one) {
  const Json model =
      model_of("t.models.gpt2 { layers = 12, heads = 12, width = 768, vocab = 50257, context = 1024 }");
  EXPECT_EQ(num_parameters_of_model(model), 124'439'808);
}

TEST(Model, llama_has_the_parameters_of_the_published_one) {
  // Llama 3 8B.
  const Json model = model_of(
      "t.models.llama { layers = 32, heads = 32, kv_heads = 8, width = 4096, ffn = 14336, vocab = 128256 }");
  EXPECT_EQ(num_parameters_of_model(model), 8'030'261'248);
}

TEST(Model, moe_has_the_parameters_of_the_published_one) {
  // Mixtral 8x7B.
  const Json model = model_of(
      "t.models.moe { layers = 32, heads = 32, kv_heads = 8, width = 4096, ffn = 14336, vocab = 32000, "
      "experts = 8, group = 4 }");
  EXPECT_EQ(num_parameters_of_model(model), 46'702'792'704);
}

TEST(Model, moe_has_experts_in_every_nth_layer) {
  const Json round = model_of(
      "t.models.moe { layers = 6, heads = 1, width = 8, vocab = 8, ffn = 16, experts = 4, group = 4, every = "
      "3 }")["ops"][1];
  EXPECT_EQ(round["repeat"], 2);
  std::vector<std::string> kinds;
  std::set<std::string> names;
  for (const Json& op : round["ops"]) kinds.push_back(op["op"]);
  for (const Json& param : round["params"]) names.insert(param["name"].get<std::string>());
  EXPECT_EQ(std::ranges::count(kinds, "route_topk"), 1);
  EXPECT_EQ(std::ranges::count(kinds, "attention"), 3);
  EXPECT_TRUE(names.contains("model.layers.{i}.0.mlp.up_proj.weight"));
  EXPECT_TRUE(names.contains("model.layers.{i}.2.mlp.experts.up_proj.weight"));
  EXPECT_TRUE(names.contains("model.layers.{i}.2.mlp.router.weight"));
}

TEST(Model, capacity_is_the_factor_times_an_even_share_and_at_most_the_group) {
  const auto capacity = [](const std::string& options) {
    const Json model =
        model_of("t.models.moe { layers = 1, heads = 1, width = 8, vocab = 8, ffn = 16, " + options + " }");
    for (const Json& op : model["ops"][1]["ops"]) {
      if (op["op"] == "dispatch") return op["attrs"]["capacity"].get<int>();
    }
    return -1;
  };
  EXPECT_EQ(capacity("experts = 8, top_k = 2, group = 4, capacity_factor = 1"), 1);
  EXPECT_EQ(capacity("experts = 3, top_k = 2, group = 4, capacity_factor = 1"), 3);  // 2.67 up
  EXPECT_EQ(capacity("experts = 2, top_k = 2, group = 4, capacity_factor = 9"), 4);
}

TEST(Model, quickstart_has_about_three_million_parameters) {
  const auto recipe =
      evaluate_recipe(request_for(TENON_SOURCE_DIR "/scripts/recipes/quickstart.lua", {"file=corpus.txt"}));
  ASSERT_TRUE(recipe.ok());
  EXPECT_NEAR(static_cast<double>(num_parameters_of_model(recipe->recipe["model"])), 3e6, 4e5);
}

TEST(Model, names_are_unique_and_dropouts_have_keys_of_their_own) {
  const Json model =
      model_of("t.models.gpt2 { layers = 3, heads = 2, width = 8, vocab = 8, context = 4, dropout = 0.5 }");
  std::map<std::string, int> names;
  std::map<int64_t, int> keys;
  const auto visit = [&](const Json& ops) {
    for (const Json& op : ops) {
      if (op.contains("repeat")) continue;
      for (const Json& name : op["out"]) ++names[name.get<std::string>()];
      if (op["op"] == "dropout") ++keys[op["attrs"]["key"].get<int64_t>()];
    }
  };
  visit(model["ops"]);
  for (const Json& op : model["ops"]) {
    if (op.contains("repeat")) visit(op["ops"]);
  }
  for (const auto& [name, count] : names) EXPECT_EQ(count, 1) << name;
  EXPECT_EQ(keys, (std::map<int64_t, int>{{0, 1}, {65536, 1}, {131072, 1}}));
}

TEST(Model, tied_head_adds_no_parameter) {
  const auto count = [](const std::string& more) {
    return num_parameters_of_model(model_of(
        "t.models.gpt2 { layers = 1, heads = 1, width = 4, vocab = 16, context = 4, " + more + " }"));
  };
  EXPECT_EQ(count("tied = false") - count("tied = true"), 64);
}

TEST(Model, of_ones_own_is_written_with_nn) {
  const Json model = model_of(
      "nn.model(\"mine\", function(tokens)\n"
      "  local shared = nn.param { name = \"shared\", dims = { { \"hidden\", 4 }, { \"hidden\", 4 } }, init "
      "= nn.uniform(0.5) }\n"
      "  local x = nn.embedding { tokens, name = \"e\", dims = { { \"vocab\", 8 }, { \"hidden\", 4 } } }\n"
      "  x = nn.blocks(x, 2, function(h, i)\n"
      "    return nn.add(h, nn.linear { nn.linear { h, weight = shared }, name = \"h.\" .. i, out = { "
      "\"hidden\", 4 } })\n"
      "  end)\n"
      "  x = nn.blocks(x, 3, function(h, i) return nn.gelu(nn.linear { h, weight = shared }) end)\n"
      "  return nn.linear { x, name = \"head\", out = { \"vocab\", 8 } }\n"
      "end)");
  EXPECT_EQ(model["ops"][1]["carry"], Json::parse(R"([["e", "add"]])"));
  EXPECT_EQ(model["ops"][2]["carry"], Json::parse(R"([["e", "gelu"]])"));
  EXPECT_EQ(model["ops"][2]["params"], Json::array());
  EXPECT_EQ(model["ops"][1]["params"][0]["name"], "h.{i}.weight");
  EXPECT_EQ(model["params"][1], Json::parse(R"({"name": "shared", "dims": [["hidden", 4], ["hidden", 4]],
                                                "init": {"kind": "uniform", "bound": 0.5}})"));
  EXPECT_EQ(model["logits"], "head");
}

TEST(Model, a_round_of_several_functions_has_as_many_layers) {
  const Json model = model_of(
      "nn.model(\"rounds\", function(tokens)\n"
      "  local x = nn.embedding { tokens, name = \"e\", dims = { { \"vocab\", 8 }, { \"hidden\", 4 } } }\n"
      "  x = nn.blocks(x, 3, {\n"
      "    function(h, i) return nn.gelu(nn.linear { h, name = i .. \".a\", out = { \"hidden\", 4 } }) end,\n"
      "    function(h, i) return nn.linear { h, name = i .. \".b\", out = { \"hidden\", 4 } } end,\n"
      "  })\n"
      "  return nn.linear { x, name = \"head\", out = { \"vocab\", 8 } }\n"
      "end)");
  EXPECT_EQ(model["ops"][1]["layers"], Json::parse("[2, 1]"));
  EXPECT_EQ(model["ops"][1]["ops"].size(), 3u);
  EXPECT_EQ(model["ops"][1]["ops"][2]["in"][0], model["ops"][1]["ops"][1]["out"][0]);
  EXPECT_EQ(model["ops"][1]["carry"][0][1], model["ops"][1]["ops"][2]["out"][0]);
}

TEST(Model, logits_are_capped_with_softcap) {
  const Json model = model_of(
      "nn.model(\"capped\", function(tokens)\n"
      "  local x = nn.embedding { tokens, name = \"wte\", dims = { { \"vocab\", 8 }, { \"hidden\", 4 } } }\n"
      "  return nn.softcap { nn.linear { x, name = \"head\", out = { \"vocab\", 8 } }, cap = 30 }\n"
      "end)");
  EXPECT_EQ(model["ops"].back(),
            Json::parse(R"({"op": "softcap", "in": ["head"], "out": ["softcap"], "attrs": {"cap": 30.0}})"));
  EXPECT_EQ(model["logits"], "softcap");
}

}  // namespace
}  // namespace tenon
