// Parameters that a strategy shards over an axis over which the batch is cut too: they rest so, and are
// gathered where they are used; what is trained is what one device trains. Exact numerics refuse it by name.
#include "close.hpp"
#include "combination.hpp"
#include "virtual_run.hpp"

namespace tenon::test {
namespace {

struct PinCase {
  std::string name;
  Combination combination;
  std::string params;  // those whose names end so
  uint32_t dim = 0;
};

// A strategy that shards the parameters of a case over dp.
class Pinning {
 public:
  static std::function<void(PluginSet&)> of(const PinCase& c) {
    return [c](PluginSet& plugins) {
      wanted_ = c;
      plugins.passes.push_back({.id = "test/pins", .version = {}, .table = &kPass, .options = {}});
    };
  }
  // How many it sharded, each time that it ran.
  static int pinned() { return pinned_; }

 private:
  static tenon_code run(const tenon_pass_config* config, tenon_graph* graph, tenon_error* error) {
    const tenon_value_id* borrowed = nullptr;
    const uint32_t n = config->api->values(graph, &borrowed);
    const std::vector<tenon_value_id> values(borrowed, borrowed + n);
    pinned_ = 0;
    for (const tenon_value_id id : values) {
      tenon_value_info info{};
      info.struct_size = sizeof info;
      config->api->value(graph, id, &info, error);
      const std::string name = info.name;
      if (info.role != TENON_ROLE_PARAM || !name.ends_with(wanted_.params) || info.ndim <= wanted_.dim)
        continue;
      if (info.dims[wanted_.dim] % config->api->axis_size(graph, "dp") != 0) continue;
      const tenon_code code = config->api->shard(graph, id, wanted_.dim, "dp", error);
      if (code != TENON_OK) return code;
      ++pinned_;
    }
    return TENON_OK;
  }

  static constexpr tenon_pass kPass{
      sizeof(tenon_pass), TENON_PHASE_A, nullptr, nullptr, nullptr, nullptr, run};
  inline static PinCase wanted_;
  inline static int pinned_ = 0;
};

class Pins : public testing::TestWithParam<PinCase> {};

TEST_P(Pins, beside_a_batch_over_the_same_axis_are_gathered) {
  const PinCase& c = GetParam();
  const RunRecord one = must_run(recipe_of(c.combination, corpus_file(), true), {.steps = 2});
  const RunRecord many =
      must_run(recipe_of(c.combination, corpus_file(), false),
               {.ranks = world_of(c.combination), .steps = 2, .change_plugins = Pinning::of(c)});
  EXPECT_GT(Pinning::pinned(), 0);
  EXPECT_EQ(many.disagreements, std::vector<std::string>{});
  expect_close(one, many, Dtype::f64, 1e-10);
  expect_close_tensors(one, many, 1e-8);
}

const Combination kDp2{"", "gpt2 untied", {{"dp", 2}}, "data"};
const PinCase kCases[] = {
    {"table", kDp2, "wte.weight"},
    {"table_by_hidden", kDp2, "wte.weight", 1},
    {"tied_table", {"", "gpt2", {{"dp", 2}}, "data", "", 2}, "wte.weight"},
    {"table_of_llama", {"", "llama", {{"dp", 2}}, "data", "", 1, 3, "sgd"}, "embed_tokens.weight"},
    {"weights", kDp2, ".weight"},
    {"weights_by_last_dim", kDp2, ".weight", 1},
    {"biases", kDp2, ".bias"},
    {"all", {"", "llama", {{"dp", 2}}, "data", "", 2}, ""},
    {"all_of_experts", {"", "moe", {{"dp", 2}}, "data"}, ""},
    {"beside_zero3", {"", "gpt2", {{"dp", 2}}, "data zero3", "", 2}, "wte.weight"},
    {"beside_tensor", {"", "llama", {{"dp", 2}, {"tp", 2}}, "data tensor", "", 2}, "norm.weight"},
    {"tied_between_stages", {"", "gpt2", {{"pp", 2}, {"dp", 2}}, "pipeline data", "1f1b", 4}, "wte.weight"},
};
INSTANTIATE_TEST_SUITE_P(cases, Pins, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST(Pins, are_refused_by_name_where_bits_may_not_depend_on_ranks) {
  Json recipe = recipe_of(kDp2, corpus_file(), false);
  recipe["numerics"]["mode"] = "exact";
  const auto run = run_virtual(recipe, {.ranks = 2, .change_plugins = Pinning::of({"", kDp2, "wte.weight"})});
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().code, "P036");
  EXPECT_TRUE(run.error().cause.starts_with("'wte.weight' is cut over dp, over which the batch is cut too"))
      << run.error().cause;
}

}  // namespace
}  // namespace tenon::test
