// What a user reads after a mistake: code, cause, file:line:column with the line, and what was meant.
#include "support.h"

namespace tenon {
namespace {

// The first two lines: the cause and the place.
std::string head(const std::string& text) { return text.substr(0, text.find('\n', text.find('\n') + 1)); }

TEST(Message, unknown_key_shows_the_line_and_what_was_meant) {
  EXPECT_EQ(message_of("local t = require \"tenon\"\n"
                       "local optim = t.optim.adamw {\n"
                       "  lr = 0.1,\n"
                       "    wieght_decay = 0.1,\n"
                       "}\n"),
            "error[R002]: unknown option 'wieght_decay' for adamw\n"
            "  --> r.lua:4:5\n"
            "  |\n"
            "4 |     wieght_decay = 0.1,\n"
            "  |     ^^^^^^^^^^^^\n"
            "  fix: did you mean 'weight_decay'?");
}

TEST(Message, unknown_key_is_found_in_a_tail_call_and_in_a_nested_table) {
  EXPECT_EQ(head(message_of(tiny_run("eval = { every = 1,\n  bathces = 3 },"))),
            "error[R002]: unknown option 'bathces' for eval\n  --> r.lua:9:3");
}

TEST(Message, overrides_of_kernels_are_plugins_of_that_kind_by_name) {
  EXPECT_EQ(
      head(message_of(tiny_run("kernels = { \"kernels/cpu\", overrides = {\n  gelu = \"sink/jsonl\" } },"))),
      "error[R003]: 'gelu' of overrides wants a plugin of kind 'kernels' (t.plugin(\"kernels/...\")), got "
      "the string \"sink/jsonl\"\n  --> r.lua:9:3");
  EXPECT_TRUE(has(message_of(tiny_run("kernels = { overrides = { gelu = \"kernels/a\" } },")),
                  "kernels needs as entry 1 a plugin of kind 'kernels'"));
  EXPECT_TRUE(has(message_of(tiny_run("kernels = { \"kernels/cpu\", override = {} },")),
                  "did you mean 'overrides'?"));
  EXPECT_TRUE(has(message_of(tiny_run("kernels = { \"kernels/cpu\", overrides = { \"kernels/a\" } },")),
                  "overrides has no place for the string \"kernels/a\" without a name"));
}

TEST(Message, unknown_key_without_a_near_one_lists_all) {
  EXPECT_TRUE(has(message_of(tiny_run("save = { x = 1 },")), "fix: known: every, keep"));
}

TEST(Message, column_counts_code_points_and_the_caret_follows_tabs) {
  EXPECT_EQ(message_of("local t = require \"tenon\"\n"
                       "\tlocal s = \"\xc3\xa4\xc3\xb6\"; t.mesh { dq = 2 }\n"),
            "error[R002]: unknown axis 'dq' for t.mesh\n"
            "  --> r.lua:2:27\n"
            "  |\n"
            "2 | \tlocal s = \"\xc3\xa4\xc3\xb6\"; t.mesh { dq = 2 }\n"
            "  | \t                         ^^\n"
            "  fix: did you mean 'dp'?");
}

TEST(Message, wrong_type_says_what_was_expected_and_got) {
  EXPECT_EQ(
      head(message_of(tiny_run("seed = \"one\","))),
      "error[R003]: 'seed' of t.run wants a whole number >= 0, got the string \"one\"\n  --> r.lua:8:1");
  EXPECT_EQ(
      head(message_of(tiny_run("mesh = t.lr.constant { value = 1 },"))),
      "error[R003]: 'mesh' of t.run wants a mesh (t.mesh { dp = 2 }), got a learning rate\n  --> r.lua:8:1");
  EXPECT_EQ(head(message_of(tiny_run("strategies = { t.sink.jsonl {} },"))),
            "error[R003]: entry 1 of strategies wants a plugin of kind 'parallel' "
            "(t.plugin(\"parallel/...\")), got a "
            "plugin\n  --> r.lua:8:16");
  EXPECT_EQ(head(message_of(tiny_run("seed = 1.5,"))),
            "error[R003]: 'seed' of t.run wants a whole number >= 0, got 1.5\n  --> r.lua:8:1");
}

TEST(Message, value_out_of_range_says_the_range) {
  EXPECT_EQ(head(message_of(tiny_run("microbatches = 0,"))),
            "error[R005]: 'microbatches' of t.run wants a whole number >= 1, got 0\n  --> r.lua:8:1");
  EXPECT_EQ(head(message_of(tiny_run("precision = \"f31\","))),
            "error[R005]: 'precision' of t.run wants one of \"f32\", \"f64\", got the string \"f31\"\n  --> "
            "r.lua:8:1");
}

TEST(Message, missing_key_is_named_with_its_type) {
  EXPECT_EQ(
      head(message_of("local t = require \"tenon\"\nlocal o = t.optim.sgd {}")),
      "error[R004]: sgd needs 'lr', a learning rate (a number, t.lr.constant, t.lr.cosine or t.lr.wsd)\n"
      "  --> r.lua:2:11");
}

TEST(Message, constructor_without_a_table_says_so) {
  EXPECT_EQ(head(message_of("local t = require \"tenon\"\nlocal o = t.optim.sgd(0.1)")),
            "error[R003]: sgd wants a table of options, got 0.1\n  --> r.lua:2:11");
}

TEST(Message, undefined_global_suggests_the_parameter) {
  EXPECT_EQ(message_of("local t = require \"tenon\"\n"
                       "local p = t.params { rate = t.number { 1 } }\n"
                       "local o = t.optim.sgd { lr = 2 * rate }\n"),
            "error[R001]: global 'rate' is not defined\n"
            "  --> r.lua:3:34\n"
            "  |\n"
            "3 | local o = t.optim.sgd { lr = 2 * rate }\n"
            "  |                                  ^^^^\n"
            "  fix: did you mean 'p.rate'?");
}

TEST(Message, undefined_global_suggests_a_local_name) {
  EXPECT_TRUE(has(message_of("local width = 3\nlocal x = widht"), "did you mean 'width'?"));
}

TEST(Message, assignment_to_a_global_is_refused) {
  EXPECT_EQ(head(message_of("x = 1")),
            "error[R001]: recipes have no globals: 'x' is not a local variable\n  --> r.lua:1:1");
}

TEST(Message, name_that_the_vocabulary_lacks_is_corrected) {
  EXPECT_EQ(message_of("local t = require \"tenon\"\nlocal m = t.modles.gpt2 {}"),
            "error[R001]: t has no 'modles'\n"
            "  --> r.lua:2:13\n"
            "  |\n"
            "2 | local m = t.modles.gpt2 {}\n"
            "  |             ^^^^^^\n"
            "  fix: did you mean 'models'?");
}

TEST(Message, what_recipes_lack_on_purpose_says_why) {
  EXPECT_TRUE(has(message_of("io.write(1)"), "global 'io' is not defined"));
  EXPECT_TRUE(has(message_of("os.exit(1)"), "fix: a recipe must not depend on the machine or the time"));
  EXPECT_TRUE(has(message_of("local x = load(\"return 1\")"), "fix: recipes load code with require only"));
  EXPECT_TRUE(has(message_of("local x = math.random()"), "math has no 'random'"));
  EXPECT_TRUE(has(message_of("local x = string.dump(print)"), "string has no 'dump'"));
  EXPECT_TRUE(has(message_of("local x = (\"x\"):dump()"), "string has no 'dump'"));
  for (const char* name :
       {"debug", "package", "loadfile", "dofile", "collectgarbage", "coroutine", "next", "xpcall"}) {
    EXPECT_TRUE(has(message_of("local x = " + std::string(name)),
                    "global '" + std::string(name) + "' is not defined"));
  }
}

TEST(Message, unknown_override_is_corrected) {
  EXPECT_EQ(message_of(tiny_run("", "local p = t.params { lr = t.number { 1 }, steps = t.count { 2 } }"),
                       {"step=3"}),
            "error[R013]: unknown parameter 'step' on the command line\n"
            "  --> r.lua:2:11\n"
            "  |\n"
            "2 | local p = t.params { lr = t.number { 1 }, steps = t.count { 2 } }\n"
            "  |           ^\n"
            "  fix: did you mean 'steps'?");
  EXPECT_TRUE(has(message_of(tiny_run(), {"lr=3"}), "fix: this recipe declares no parameters (t.params)"));
}

TEST(Message, ill_typed_override_points_at_the_declaration) {
  const std::string source =
      tiny_run("",
               "local p = t.params { lr = t.number { 1, max = 2 }, n = t.count { 2 },\n"
               "  on = t.boolean { true }, kind = t.choice { \"a\", of = { \"a\", \"b\" } } }");
  EXPECT_EQ(head(message_of(source, {"lr=abc"})),
            "error[R013]: 'lr' wants a number <= 2, got 'abc' on the command line\n  --> r.lua:2:22");
  EXPECT_EQ(head(message_of(source, {"lr=3"})),
            "error[R013]: 'lr' wants a number <= 2, got '3' on the command line\n  --> r.lua:2:22");
  EXPECT_EQ(head(message_of(source, {"n=1.5"})),
            "error[R013]: 'n' wants a whole number >= 0, got '1.5' on the command line\n  --> r.lua:2:52");
  EXPECT_EQ(head(message_of(source, {"on=yes"})),
            "error[R013]: 'on' wants true or false, got 'yes' on the command line\n  --> r.lua:3:3");
  EXPECT_EQ(head(message_of(source, {"kind=c"})),
            "error[R013]: 'kind' wants one of \"a\", \"b\", got 'c' on the command line\n  --> r.lua:3:28");
  EXPECT_TRUE(has(message_of(source, {"lr"}), "'lr' on the command line is not key=value"));
}

TEST(Message, parameter_without_default_asks_for_it) {
  EXPECT_TRUE(has(message_of(tiny_run("", "local p = t.params { file = t.string {} }")),
                  "error[R013]: parameter 'file' has no default\n  --> r.lua:2:22"));
}

TEST(Message, parameter_that_is_not_declared_is_not_nil) {
  EXPECT_TRUE(has(message_of(tiny_run("seed = p.sed,", "local p = t.params { seed = t.count { 2 } }")),
                  "error[R001]: the parameters has no 'sed'\n  --> r.lua:8:10"));
}

TEST(Message, missing_file_is_named) {
  const RecipeFolder folder;
  const auto result = evaluate_recipe(request_for(folder.at("none.lua")));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(folder.shown(result.error().text()),
            "error[R015]: cannot read 'none.lua': No such file or directory\n  --> none.lua");
  const auto directory = evaluate_recipe(request_for(testing::TempDir()));
  ASSERT_FALSE(directory.ok());
  EXPECT_TRUE(has(directory.error().cause, "it is not a regular file"));
}

TEST(Message, syntax_error_has_line_and_column) {
  EXPECT_EQ(message_of("local t = require \"tenon\"\nlocal x = { a = 1,, }\n"),
            "error[R011]: unexpected symbol near ','\n"
            "  --> r.lua:2:18\n"
            "  |\n"
            "2 | local x = { a = 1,, }\n"
            "  |                  ^");
}

TEST(Message, compiled_lua_is_refused) {
  EXPECT_TRUE(has(message_of("\x1bLua\x54"), "cannot read 'r.lua': it is compiled Lua; recipes are text"));
}

TEST(Message, recipe_must_return_a_run) {
  EXPECT_EQ(head(message_of("local t = require \"tenon\"\n")),
            "error[R016]: a recipe returns t.run { ... }, this one returns nothing\n  --> r.lua:1:19");
  EXPECT_EQ(head(message_of("local x = 1\nreturn { steps = x }\n")),
            "error[R016]: a recipe returns t.run { ... }, this one returns a table\n  --> r.lua:2:1");
}

TEST(Message, error_of_lua_itself_has_line_and_column) {
  EXPECT_EQ(head(message_of("local a = {}\n\nlocal b = a.x.y")),
            "error[R012]: attempt to index a nil value (field 'x')\n  --> r.lua:3:13");
  EXPECT_EQ(head(message_of("local function f() error(\"mine\") end\nf()")),
            "error[R012]: mine\n  --> r.lua:1:20");
  EXPECT_EQ(head(message_of("assert(false, \"mine\")")), "error[R012]: mine\n  --> r.lua:1:1");
  EXPECT_EQ(head(message_of("error({})")), "error[R012]: the error is a table\n  --> r.lua:1:1");
}

TEST(Message, mistake_in_a_module_names_its_file) {
  const RecipeFolder folder;
  folder.write("r.lua", "local parts = require \"parts.block\"\n");
  folder.write("parts/block.lua",
               "local t = require \"tenon\"\nreturn t.optim.sgd { lr = 1, momemtum = 2 }\n");
  const auto result = evaluate_recipe(request_for(folder.at("r.lua")));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(head(folder.shown(result.error().text())),
            "error[R002]: unknown option 'momemtum' for sgd\n  --> parts/block.lua:2:30");
}

TEST(Message, require_reaches_only_the_vocabulary_and_the_recipes_folder) {
  EXPECT_TRUE(has(message_of("local x = require \"../x\""), "'../x' is not a module name"));
  EXPECT_TRUE(has(message_of("local x = require \"..x\""), "'..x' is not a module name"));
  EXPECT_TRUE(has(message_of("local x = require \"/etc/passwd\""), "'/etc/passwd' is not a module name"));
  EXPECT_EQ(head(message_of("local x = require \"none\"")),
            "error[R015]: module 'none' is not there: no none.lua\n  --> r.lua:1:11");
}

TEST(Message, wrong_use_of_the_model_vocabulary_is_explained) {
  const auto model = [](const std::string& body) {
    return message_of(
        "local nn = (require \"tenon\").nn\nlocal m = nn.model(\"m\", function(tokens, positions)\n" + body +
        "\nend)");
  };
  const std::string embed =
      "local x = nn.embedding { tokens, name = \"e\", dims = { { \"vocab\", 8 }, { \"hidden\", 4 } } }\n";
  EXPECT_EQ(head(model(embed + "return nn.gelu(y)")),
            "error[R001]: global 'y' is not defined\n  --> r.lua:4:16");
  EXPECT_EQ(head(model(embed + "return nn.gelu(3)")),
            "error[R003]: nn.gelu wants a value of the model, got 3\n  --> r.lua:4:8");
  EXPECT_EQ(head(model(embed +
                       "local u = nn.linear { x, name = \"f\", out = { \"ffn\", 8 } }\nreturn nn.add(x, u)")),
            "error[R005]: nn.add: [batch seq hidden=4] and [batch seq ffn=8] differ\n  --> r.lua:5:8");
  EXPECT_EQ(head(model(embed + "local u = nn.linear { x, name = \"f\", out = { \"ffn\", 0 } }")),
            "error[R005]: 'out' of nn.linear wants a pair { \"name\", size } or a list of them, got a table\n"
            "  --> r.lua:4:38");
  EXPECT_EQ(head(model(embed + "local y = nn.blocks(x, 2, function(h, i) return nn.gelu(x) end)\nreturn y")),
            "error[R012]: nn.gelu: the value 'e' was changed by nn.blocks\n  --> r.lua:4:49");
  EXPECT_EQ(
      head(model(embed + "local k\nlocal y = nn.blocks(x, 2, function(h, i) k = nn.gelu(h) return k end)\n"
                         "return nn.add(y, k)")),
      "error[R012]: nn.add: the value 'gelu' belongs to the inside of nn.blocks\n  --> r.lua:6:8");
  EXPECT_EQ(
      head(model(embed + "local a = nn.linear { x, name = \"f\", out = { \"ffn\", 8 } }\n"
                         "return nn.linear { a, name = \"f\", out = { \"ffn\", 9 } }")),
      "error[R006]: nn.linear: parameter 'f.weight' is [ffn=8 hidden=4] and [ffn=9 ffn=8]\n  --> r.lua:5:8");
  EXPECT_EQ(head(model("return tokens")),
            "error[R005]: nn.model: logits are [batch seq vocab], got [batch seq]\n"
            "  --> r.lua:2:11");
}

TEST(Message, model_options_that_do_not_fit_name_the_option) {
  EXPECT_EQ(head(message_of(
                "local t = require \"tenon\"\nlocal m = t.models.gpt2 { layers = 1, heads = 3, width = 8,\n"
                "vocab = 8, context = 8 }")),
            "error[R005]: 'heads' = 3 of t.models.gpt2 does not divide 'width' = 8\n  --> r.lua:2:39");
}

TEST(Message, context_beyond_the_models_positions_is_refused) {
  EXPECT_EQ(
      head(message_of("local t = require \"tenon\"\nreturn t.run { steps = 1, batch = 1, context = 9,\n"
                      "model = t.models.gpt2 { layers = 1, heads = 1, width = 4, vocab = 8, context = 8 },\n"
                      "data = t.data.text { file = \"x\" }, optim = t.optim.sgd { lr = 1 } }")),
      "error[R005]: 'context' of t.run is 9, but the model has 8 positions\n  --> r.lua:2:38");
}

TEST(Message, values_that_json_cannot_hold_are_refused) {
  EXPECT_EQ(
      head(message_of(tiny_run("kernels = t.plugin(\"kernels/x\", { a = 0 / 0 }),"))),
      "error[R003]: 'a' of kernels/x wants a number, a string, true, false or a list of strings, got -nan\n"
      "  --> r.lua:8:35");
  EXPECT_EQ(head(message_of(tiny_run("name = \"\\xff\","))),
            "error[R003]: /name: the string is not UTF-8\n  --> r.lua:8:1");
}

TEST(Message, mixtures_of_experts_say_what_does_not_fit) {
  const auto moe = [](const std::string& options) {
    return head(message_of(
        tiny_run("model = t.models.moe { layers = 3, heads = 1, width = 8, vocab = 8, " + options + " },")));
  };
  EXPECT_EQ(moe("group = 4"),
            "error[R004]: t.models.moe needs 'experts', a whole number >= 1\n  --> r.lua:8:9");
  EXPECT_EQ(moe("experts = 2, top_k = 3"),
            "error[R005]: 'top_k' = 3 of t.models.moe is more than 'experts' = 2\n  --> r.lua:8:82");
  EXPECT_EQ(moe("experts = 2, every = 2"),
            "error[R005]: 'every' = 2 of t.models.moe does not divide 'layers' = 3\n  --> r.lua:8:82");
  EXPECT_EQ(moe("experts = 2, group = 3"),
            "error[R005]: 'context' of t.run is 8, which the model's routing 'group' = 3 does not divide\n"
            "  --> r.lua:4:24");
}

TEST(Message, routed_values_and_values_of_tokens_are_not_mixed_up) {
  const auto model = [](const std::string& body) {
    return head(message_of(
        "local nn = (require \"tenon\").nn\nlocal m = nn.model(\"m\", function(tokens)\n"
        "local x = nn.embedding { tokens, name = \"e\", dims = { { \"vocab\", 8 }, { \"hidden\", 4 } } }\n"
        "local r = nn.route { x, name = \"r\", experts = 2, top_k = 1, group = 4 }\n"
        "local d = nn.dispatch(x, r)\n" +
        body + "\nend)\n"));
  };
  EXPECT_EQ(model("nn.linear { d, name = \"f\", out = { \"ffn\", 8 } }"),
            "error[R003]: nn.linear wants a value for each token, got [batch routing_group expert=2 slot=3 "
            "hidden=4]\n  --> r.lua:6:13");
  EXPECT_EQ(model("nn.grouped_linear { x, name = \"f\", out = { \"ffn\", 8 } }"),
            "error[R003]: nn.grouped_linear wants x of [batch routing_group expert slot ...], got [batch seq "
            "hidden=4]\n  --> r.lua:6:21");
  EXPECT_EQ(
      model("nn.dispatch(d, r)"),
      "error[R005]: nn.dispatch wants x of [batch seq hidden=4], got [batch routing_group expert=2 slot=3 "
      "hidden=4]\n  --> r.lua:6:1");
  EXPECT_EQ(
      model("nn.combine(x, r)"),
      "error[R005]: nn.combine wants y of [batch routing_group expert=2 slot=3 hidden=4], got [batch seq "
      "hidden=4]\n  --> r.lua:6:1");
  EXPECT_EQ(
      model("nn.combine(d, d)"),
      "error[R003]: 'routing' of nn.combine wants a routing (t.nn.route), got a value\n  --> r.lua:6:1");
}

}  // namespace
}  // namespace tenon
