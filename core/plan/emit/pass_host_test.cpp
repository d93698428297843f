// Passes that agree, disagree and ask for what is not there, through tables of the test's own.
#include "plan/emit/pass_host.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "graph/ops.h"

namespace {

bool g_no_memory = false;

}  // namespace

void* operator new(size_t size) {
  void* const out = g_no_memory ? nullptr : std::malloc(std::max<size_t>(size, 1));
  return out != nullptr ? out : throw std::bad_alloc();
}
void operator delete(void* pointer) noexcept { std::free(pointer); }
void operator delete(void* pointer, size_t) noexcept { std::free(pointer); }

namespace tenon {
namespace {

struct NoMemory {
  NoMemory() { g_no_memory = true; }
  ~NoMemory() { g_no_memory = false; }
};

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
    return run_passes(uses, graph_, mesh_);
  }
  void expect(const Status& status, const std::string& code, const std::string& cause) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, code);
    EXPECT_EQ(status.error().cause, cause);
    EXPECT_EQ(status.error().place, "/strategies");
  }
  // What passes said about a value: "batch@dp R@tp".
  std::string said(ValueId id = 0) const {
    const Value& value = graph_.value(id);
    std::string out;
    for (const Pin& pin : value.pins) {
      const std::string where = pin.dim ? value.dims[*pin.dim].name : "R";
      out += (out.empty() ? "" : " ") + where + "@" + mesh_.axes[pin.axis].name + " by " + pin.by;
    }
    return out;
  }

  Graph graph_;
  Mesh mesh_{{{"dp", 2}, {"tp", 4}, {"one", 1}}};
};

TEST_F(PassHost, what_no_pass_mentions_is_unset) {
  ASSERT_TRUE(run({}).ok());
  EXPECT_EQ(said(), "");
}

tenon_code splits(const tenon_pass_config* config, tenon_graph* graph, tenon_error* error) {
  if (const tenon_code code = config->api->split_axis(graph, kTp, 2, error); code < 0) return code;
  EXPECT_STREQ(config->api->axis_atom(graph, kTp, 0), "tp_out");
  EXPECT_STREQ(config->api->axis_atom(graph, kTp, 1), "tp_in");
  EXPECT_EQ(config->api->axis_atom(graph, kTp, 2), nullptr);
  if (const tenon_code code = config->api->sum_late(graph, kTokens, "tp_in", error); code < 0) return code;
  return config->api->shard(graph, kTokens, kSeq, "tp_out", error);
}

TEST_F(PassHost, an_axis_is_split_before_passes_say_anything_else) {
  const tenon_pass other = table(shard<kBatch, kTp>), splitting = table(splits);
  expect(run({other, splitting}), "P003",
         "parallel/b: axis 'tp' split behind 2 ranks: the mesh has to be made so first");
  graph_.value(0).pins.clear();
  mesh_ = mesh_for({{"parallel/a", &splitting, {}}}, graph_, mesh_);
  EXPECT_EQ(mesh_.text(), "dp 2 x tp_out 2 x tp_in 2 x one 1");
  EXPECT_EQ(said(), "");
  ASSERT_TRUE(run({splitting}).ok());
  EXPECT_EQ(said(), "seq@tp_out by parallel/a");
  EXPECT_EQ(graph_.value(0).late, std::vector<AxisId>{2});
}

tenon_code splits_in_three(const tenon_pass_config* config, tenon_graph* graph, tenon_error* error) {
  return config->api->split_axis(graph, kTp, 3, error);
}

TEST_F(PassHost, a_split_that_does_not_divide_is_refused) {
  const tenon_pass splitting = table(splits_in_three);
  EXPECT_EQ(mesh_for({{"parallel/a", &splitting, {}}}, graph_, mesh_).text(), mesh_.text());
  expect(run({splitting}), "P003",
         "parallel/a: axis 'tp' split behind 3 ranks, which its parts do not allow");
}

TEST_F(PassHost, a_split_into_a_part_that_is_called_as_another_axis_is_refused) {
  const tenon_pass splitting = table(splits);
  for (const char* taken : {"tp_out", "tp_in"}) {
    mesh_ = Mesh{{{"dp", 2}, {"tp", 4}, {taken, 2}}};
    expect(run({splitting}), "P003",
           std::string("parallel/a: axis 'tp' split behind 2 ranks: a part of it is to be called '") + taken +
               "', as another axis of the mesh is");
  }
}

TEST_F(PassHost, two_passes_on_two_axes_nest_and_both_are_recorded) {
  ASSERT_TRUE(run({table(shard<kBatch, kDp>), table(shard<kBatch, kTp>)}).ok());
  EXPECT_EQ(said(), "batch@dp by parallel/a batch@tp by parallel/b");
}

TEST_F(PassHost, two_passes_that_say_the_same_agree) {
  ASSERT_TRUE(run({table(shard<kBatch, kDp>), table(shard<kBatch, kDp>)}).ok());
  EXPECT_EQ(said(), "batch@dp by parallel/a");
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
  EXPECT_EQ(said(), "");
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
  EXPECT_EQ(said(), "");  // found before any pass ran
}

TEST_F(PassHost, two_that_provide_what_both_exclude_conflict) {
  tenon_pass pass = table(shard<kBatch, kDp>);
  pass.provides = "storage";
  pass.conflicts = "storage";
  EXPECT_TRUE(run({pass}).ok());
  expect(run({pass, pass}), "P004", "parallel/a conflicts with 'storage' of parallel/b");
  tenon_pass indifferent = pass;
  indifferent.conflicts = nullptr;
  for (const auto& order : {std::vector{pass, indifferent}, std::vector{indifferent, pass}})
    EXPECT_EQ(run(order).error().code, "P004");
}

// Phase A before phase B, whatever the order in the recipe.
TEST_F(PassHost, phases_run_in_order) {
  tenon_pass late = table(shard<kBatch, kTp>);
  late.phase = TENON_PHASE_B;
  ASSERT_TRUE(run({late, table(shard<kBatch, kDp>)}).ok());
  EXPECT_EQ(said(), "batch@dp by parallel/b batch@tp by parallel/a");
}

// "dp" is dp_out and dp_in where those are the axes.
TEST_F(PassHost, a_name_stands_for_its_atoms) {
  mesh_ = Mesh{{{"dp_out", 2}, {"tp", 2}, {"dp_in", 2}}};
  const auto pass = [](const tenon_pass_config* config, tenon_graph* graph, tenon_error* error) {
    EXPECT_EQ(config->api->axis_size(graph, "dp"), 4);
    return config->api->shard(graph, kTokens, kBatch, "dp", error);
  };
  ASSERT_TRUE(run({table(pass)}).ok());
  EXPECT_EQ(said(), "batch@dp_out by parallel/a batch@dp_in by parallel/a");
}

template <uint32_t level, const char* axis, const char* within = nullptr>
tenon_code store(const tenon_pass_config* config, tenon_graph* graph, tenon_error* error) {
  return config->api->store(graph, 2, level, axis, within, error);
}

class PassStorage : public PassHost {
 protected:
  PassStorage() {
    Value weight;
    weight.name = "weight";
    weight.dims = {{"out", 8}};
    weight.role = Role::param;
    graph_.add_value(std::move(weight));
  }
};

TEST_F(PassStorage, a_parameter_rests_where_a_pass_says) {
  ASSERT_TRUE(run({table(store<2, kDp>), table(store<2, kDp>)}).ok());
  EXPECT_EQ(graph_.value(1).storage, (Storage{2, {0}, {}, "parallel/b"}));
}

TEST_F(PassStorage, two_passes_that_store_differently_disagree) {
  const std::string cause = "parallel/b: wants 'weight' to rest in parts another way than parallel/a";
  expect(run({table(store<2, kDp>), table(store<3, kDp>)}), "P003", cause);
  graph_.value(1).storage = {};
  expect(run({table(store<2, kDp>), table(store<2, kTp>)}), "P003", cause);
}

TEST_F(PassStorage, what_cannot_rest_in_parts_is_refused) {
  expect(run({table(store<4, kDp>)}), "P003", "parallel/a: level 4 of storage: 0 to 3 exist");
  expect(run({table(store<1, kNoAxis>)}), "P003", "parallel/a: the mesh has no axis 'ep'");
  expect(run({table(store<3, kDp, kTp>)}), "P003",
         "parallel/a: axis 'tp' is not part of the one that it would be within");
  expect(
      run({table(store<2, kDp, kDp>)}), "P003",
      "parallel/a: wants 'weight' gathered within 'dp', but only parameters that rest in parts are gathered");
  const auto input = [](const tenon_pass_config* config, tenon_graph* graph, tenon_error* error) {
    return config->api->store(graph, kTokens, 1, "dp", nullptr, error);
  };
  expect(run({table(input)}), "P003", "parallel/a: 'tokens' is no parameter: only those can rest in parts");
}

class PassOps : public PassHost {
 protected:
  PassOps() {
    for (int i = 0; i < 4; ++i)
      EXPECT_TRUE(graph_.add_op("add", {0, 0}, {}, Phase::forward, -1, {"sum" + std::to_string(i)}).ok());
  }
};

template <uint32_t number, const char* axis>
tenon_code stage(const tenon_pass_config* config, tenon_graph* graph, tenon_error* error) {
  return config->api->set_stage(graph, 1, number, axis, error);
}

TEST_F(PassOps, stages_are_spread_over_one_axis) {
  ASSERT_TRUE(run({table(stage<3, kTp>)}).ok());
  EXPECT_EQ(graph_.op(0).stage, 3);
  EXPECT_EQ(graph_.pipeline, AxisId{1});
  EXPECT_EQ(graph_.stages(), 4);
  for (const auto& [pass, text] :
       {std::pair{table(stage<4, kTp>), "4"}, {table(stage<1u << 31, kTp>), "2147483648"}}) {
    expect(run({pass}), "P003", "parallel/a: stage " + std::string(text) + ", which none of 4 ops can be on");
    EXPECT_EQ(graph_.op(0).stage, 3);
  }
  expect(run({table(stage<1, kDp>)}), "P003", "parallel/a: the stages are spread over tp already");
  expect(run({table(stage<1, kNoAxis>)}), "P003",
         "parallel/a: stages need one axis of the mesh, and 'ep' is none");
}

template <const char* kind>
tenon_code substitute(const tenon_pass_config* config, tenon_graph* graph, tenon_error* error) {
  return config->api->substitute(graph, 1, kind, error);
}
constexpr char kAttention[] = "attention", kNoKind[] = "plus";

TEST_F(PassOps, an_op_becomes_only_what_takes_its_operands) {
  expect(run({table(substitute<kNoKind>)}), "P003", "parallel/a: no op kind 'plus'");
  const Status attention = run({table(substitute<kAttention>)});
  ASSERT_FALSE(attention.ok());
  EXPECT_NE(attention.error().cause.find("wrong number of operands"), std::string::npos);
  EXPECT_STREQ(graph_.op(0).def->kind, "add");
  const auto beyond = [](const tenon_pass_config* config, tenon_graph* graph, tenon_error* error) {
    return config->api->substitute(graph, 5, "add", error);
  };
  expect(run({table(beyond)}), "P003", "parallel/a: no such op");
}

// -- tables of the host, against passes that break the contract -------------------------------------------

TEST_F(PassHost, a_null_is_refused_by_every_slot) {
  ASSERT_TRUE(graph_.add_op("add", {0, 0}, {}, Phase::forward, 3, {"sum"}).ok());
  const auto pass = [](const tenon_pass_config* config, tenon_graph* graph, tenon_error*) {
    const tenon_graph_api& api = *config->api;
    const tenon_value_id* ids = nullptr;
    for (tenon_graph* const given : {graph, static_cast<tenon_graph*>(nullptr)}) {
      const tenon_value_id** const out = given == nullptr ? &ids : nullptr;  // one of the two is NULL
      EXPECT_EQ(api.ops(given, out), 0u);
      EXPECT_EQ(api.values(given, out), 0u);
      EXPECT_EQ(api.op_inputs(given, 1, out), 0u);
      EXPECT_EQ(api.op_outputs(given, 1, out), 0u);
      const char* const axis = given == nullptr ? "dp" : nullptr;
      EXPECT_EQ(api.axis_size(given, axis), 0);
      EXPECT_EQ(api.axis_atom(given, axis, 0), nullptr);
      const auto refused = [&](auto call) {
        tenon_error error = empty_abi_error();
        EXPECT_EQ(call(&error), TENON_E_ARGUMENT);
        EXPECT_NE(std::string(error.message).find("is NULL"), std::string::npos) << error.message;
        EXPECT_EQ(call(nullptr), TENON_E_ARGUMENT);
      };
      refused([&](tenon_error* e) { return api.shard(given, kTokens, 0, axis, e); });
      refused([&](tenon_error* e) { return api.replicate(given, kTokens, axis, e); });
      refused([&](tenon_error* e) { return api.store(given, kTokens, 1, axis, nullptr, e); });
      refused([&](tenon_error* e) { return api.set_stage(given, 1, 0, axis, e); });
      refused(
          [&](tenon_error* e) { return api.substitute(given, 1, given == nullptr ? "add" : nullptr, e); });
      refused([&](tenon_error* e) { return api.split_axis(given, axis, 1, e); });
      refused([&](tenon_error* e) { return api.sum_late(given, kTokens, axis, e); });
      tenon_value_info info{};
      info.struct_size = sizeof info;
      refused(
          [&](tenon_error* e) { return api.value(given, kTokens, given == nullptr ? &info : nullptr, e); });
    }
    EXPECT_STREQ(api.op_kind(nullptr, 1), "");
    EXPECT_EQ(api.op_flops(nullptr, 1), 0);
    return static_cast<tenon_code>(TENON_OK);
  };
  EXPECT_TRUE(run({table(pass)}).ok());
}

// Through a plugin's frames, which may be of any language, goes no exception.
TEST_F(PassOps, without_memory_every_slot_refuses_and_throws_nothing) {
  const auto pass = [](const tenon_pass_config* config, tenon_graph* graph, tenon_error* given) {
    const tenon_graph_api& api = *config->api;
    const tenon_value_id* ids = nullptr;
    tenon_value_info info{};
    info.struct_size = sizeof info;
    tenon_error error = empty_abi_error();
    const NoMemory none;
    bool refused = api.ops(graph, &ids) == 0 && api.values(graph, &ids) == 0 &&
                   api.axis_size(graph, "dp") == 0 && api.axis_atom(graph, "dp", 0) == nullptr;
    for (const tenon_code code :
         {api.value(graph, kTokens, &info, &error), api.shard(graph, kTokens, 0, "dp", &error),
          api.replicate(graph, kTokens, "dp", &error), api.store(graph, 2, 1, "dp", nullptr, &error),
          api.substitute(graph, 1, "mul", &error), api.split_axis(graph, "dp", 1, &error),
          api.sum_late(graph, kTokens, "dp", &error), api.sum_late(graph, kTokens, "dp", nullptr)}) {
      refused = refused && code < 0;
    }
    if (!refused) return TENON_OK + 0;
    tenon_fill(given, &error);
    return api.shard(graph, kTokens, 0, "dp", given);
  };
  const Status status = run({table(pass)});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, TENON_E_MEMORY);
  EXPECT_EQ(status.error().cause, "parallel/a: std::bad_alloc");
  EXPECT_TRUE(graph_.value(0).pins.empty());
}

TEST_F(PassHost, a_value_is_described_within_the_size_that_the_pass_gives) {
  const auto pass = [](const tenon_pass_config* config, tenon_graph* graph, tenon_error* error) {
    struct {
      tenon_value_info info;
      char behind[8];
    } room;
    std::memset(&room, 0x5a, sizeof room);
    room.info.struct_size = offsetof(tenon_value_info, dtype);  // as a header that ends with the name
    EXPECT_EQ(config->api->value(graph, kTokens, &room.info, error), TENON_OK);
    EXPECT_EQ(room.info.struct_size, offsetof(tenon_value_info, dtype));
    EXPECT_STREQ(room.info.name, "tokens");
    EXPECT_EQ(room.info.dtype, 0x5a5a5a5au);
    EXPECT_EQ(room.behind[0], 0x5a);
    return static_cast<tenon_code>(TENON_OK);
  };
  EXPECT_TRUE(run({table(pass)}).ok());
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
