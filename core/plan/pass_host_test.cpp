// Passes that agree, disagree and ask for what is not there, through tables of the test's own.
#include "plan/pass_host.h"

#include <gtest/gtest.h>

namespace tenon {
namespace {

constexpr tenon_value_id kTokens = 1;  // ids of passes start at 1
enum Dims : uint32_t { kBatch = 0, kSeq = 1 };

template <uint32_t dim, const char* axis>
tenon_code shard(const tenon_pass_config* config, tenon_graph* graph, tenon_error* error) {
  return config->api->shard(graph, kTokens, dim, axis, error);
}
template <const char* axis>
tenon_code replicate(const tenon_pass_config* config, tenon_graph* graph, tenon_error* error) {
  return config->api->replicate(graph, kTokens, axis, error);
}

constexpr char kDp[] = "dp", kTp[] = "tp", kNoAxis[] = "ep", kOne[] = "one";

tenon_pass table(tenon_code (*run)(const tenon_pass_config*, tenon_graph*, tenon_error*)) {
  return {sizeof(tenon_pass), TENON_PHASE_A, "", nullptr, nullptr, nullptr, run};
}

class PassHost : public testing::Test {
 protected:
  PassHost() {
    Value tokens;
    tokens.name = "tokens";
    tokens.dtype = Dtype::i32;
    tokens.dims = {{"batch", 8}, {"seq", 4}};
    tokens.role = Role::input;
    graph_.add_value(std::move(tokens));
  }
  Status run(const std::vector<tenon_pass>& tables) {
    std::vector<PassUse> uses;
    for (const tenon_pass& pass : tables) {
      uses.push_back({"parallel/" + std::string(1, static_cast<char>('a' + uses.size())), &pass, {}});
    }
    return run_passes(uses, TENON_PHASE_A, graph_, mesh_);
  }
  void expect(const Status& status, const std::string& code, const std::string& cause) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, code);
    EXPECT_EQ(status.error().cause, cause);
    EXPECT_EQ(status.error().place, "/strategies");
  }
  std::string placement() const {
    const Value& value = graph_.value(0);
    return value.pinned ? text(*value.pinned, value.dims, mesh_) : "unset";
  }

  Graph graph_;
  Mesh mesh_{{{"dp", 2}, {"tp", 4}, {"one", 1}}};
};

TEST_F(PassHost, what_no_pass_mentions_is_unset) {
  ASSERT_TRUE(run({}).ok());
  EXPECT_EQ(placement(), "unset");
}

TEST_F(PassHost, two_passes_on_two_axes_nest_and_both_are_recorded) {
  ASSERT_TRUE(run({table(shard<kBatch, kDp>), table(shard<kBatch, kTp>)}).ok());
  EXPECT_EQ(graph_.value(0).pinned->dims, (std::vector<std::vector<AxisId>>{{0, 1}, {}}));
  EXPECT_EQ(graph_.value(0).pinned_by, (std::vector<std::string>{"parallel/a", "parallel/b"}));
}

TEST_F(PassHost, two_passes_that_say_the_same_agree) {
  ASSERT_TRUE(run({table(shard<kBatch, kDp>), table(shard<kBatch, kDp>)}).ok());
  EXPECT_EQ(graph_.value(0).pinned->dims, (std::vector<std::vector<AxisId>>{{0}, {}}));
}

TEST_F(PassHost, two_passes_on_two_dims_disagree_and_both_are_named) {
  expect(run({table(shard<kBatch, kDp>), table(shard<kSeq, kDp>)}), "P003",
         "parallel/b: wants 'tokens' sharded by seq over dp, but parallel/a has it sharded by batch");
}

TEST_F(PassHost, replicated_after_sharded_disagrees) {
  expect(run({table(shard<kBatch, kDp>), table(replicate<kDp>)}), "P003",
         "parallel/b: wants 'tokens' replicated over dp, but parallel/a has it sharded by batch");
}

TEST_F(PassHost, sharded_after_replicated_disagrees) {
  expect(run({table(replicate<kDp>), table(shard<kBatch, kDp>)}), "P003",
         "parallel/b: wants 'tokens' sharded by batch over dp, but parallel/a has it replicated");
}

TEST_F(PassHost, an_axis_of_one_rank_shards_nothing) {
  ASSERT_TRUE(run({table(shard<kBatch, kOne>)}).ok());
  EXPECT_EQ(graph_.value(0).pinned, Placement::replicated(2));
}

// What runs on one rank must not fail on two.
TEST_F(PassHost, passes_disagree_about_an_axis_of_one_rank_too) {
  expect(run({table(shard<kBatch, kOne>), table(shard<kSeq, kOne>)}), "P003",
         "parallel/b: wants 'tokens' sharded by seq over one, but parallel/a has it sharded by batch");
}

TEST_F(PassHost, an_unknown_axis_is_refused) {
  expect(run({table(shard<kBatch, kNoAxis>)}), "P003", "parallel/a: the mesh has no axis 'ep'");
}

TEST_F(PassHost, an_unknown_dim_is_refused) {
  expect(run({table(shard<2, kDp>)}), "P003", "parallel/a: 'tokens' has no dim 2");
}

TEST_F(PassHost, an_unknown_value_is_refused) {
  const auto beyond = [](const tenon_pass_config* config, tenon_graph* graph, tenon_error* error) {
    return config->api->shard(graph, 99, 0, "dp", error);
  };
  expect(run({table(beyond)}), "P003", "parallel/a: no such value");
  const auto none = [](const tenon_pass_config* config, tenon_graph* graph, tenon_error* error) {
    return config->api->replicate(graph, 0, "dp", error);
  };
  expect(run({table(none)}), "P003", "parallel/a: no such value");
}

TEST_F(PassHost, a_need_that_nobody_provides) {
  tenon_pass pass = table(shard<kBatch, kDp>);
  pass.needs = "stages microbatches";
  expect(run({pass}), "P004", "parallel/a needs 'microbatches', which no strategy of the recipe provides");
  tenon_pass provider = table(shard<kBatch, kDp>);
  provider.provides = "microbatches stages";
  EXPECT_TRUE(run({pass, provider}).ok());
}

TEST_F(PassHost, a_conflict_names_both) {
  tenon_pass zero = table(shard<kBatch, kDp>), other = table(shard<kBatch, kDp>);
  zero.provides = "storage";
  other.provides = "replicas";
  other.conflicts = "storage";
  expect(run({zero, other}), "P004", "parallel/b conflicts with 'storage' of parallel/a");
  EXPECT_EQ(placement(), "unset");  // found before any pass ran
}

TEST_F(PassHost, two_that_provide_what_both_exclude_conflict) {
  tenon_pass pass = table(shard<kBatch, kDp>);
  pass.provides = "storage";
  pass.conflicts = "storage";
  EXPECT_TRUE(run({pass}).ok());
  expect(run({pass, pass}), "P004", "parallel/b conflicts with 'storage' of parallel/a");
}

TEST_F(PassHost, a_pass_of_another_phase_does_not_run) {
  tenon_pass pass = table(shard<kBatch, kDp>);
  pass.phase = TENON_PHASE_B;
  ASSERT_TRUE(run({pass}).ok());
  EXPECT_EQ(placement(), "unset");
}

TEST_F(PassHost, describes_values_ops_and_axes) {
  ASSERT_TRUE(graph_.add_op("add", {0, 0}, {}, Phase::forward, 3, {"sum"}).ok());
  const auto look = [](const tenon_pass_config* config, tenon_graph* graph, tenon_error* error) {
    const tenon_graph_api& api = *config->api;
    const uint32_t* ids = nullptr;
    EXPECT_EQ(api.values(graph, &ids), 2u);
    EXPECT_EQ(api.ops(graph, &ids), 1u);
    EXPECT_STREQ(api.op_kind(graph, 1), "add");
    EXPECT_STREQ(api.op_kind(graph, 2), "");
    EXPECT_EQ(api.op_inputs(graph, 1, &ids), 2u);
    EXPECT_EQ(ids[1], 1u);
    EXPECT_EQ(api.op_outputs(graph, 1, &ids), 1u);
    EXPECT_EQ(ids[0], 2u);
    EXPECT_EQ(api.op_outputs(graph, 0, &ids), 0u);
    tenon_value_info info{};
    info.struct_size = sizeof info;
    EXPECT_EQ(api.value(graph, 2, &info, error), TENON_OK);
    EXPECT_STREQ(info.name, "sum");
    EXPECT_EQ(info.producer, 1u);
    EXPECT_EQ(info.layer, 3);
    EXPECT_STREQ(info.dim_names[1], "seq");
    EXPECT_EQ(info.dims[0], 8);
    EXPECT_EQ(api.axis_size(graph, "tp"), 4);
    EXPECT_EQ(api.axis_size(graph, "ep"), 0);
    return static_cast<tenon_code>(TENON_OK);
  };
  EXPECT_TRUE(run({table(look)}).ok());
}

}  // namespace
}  // namespace tenon
