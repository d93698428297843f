// The pass against a graph made here, whose lent arrays die at every annotation, as the interface allows.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <tuple>

#include "plugin_host.hpp"
#include "tenon/draft/pass.h"

struct tenon_graph {
  struct Value {
    uint32_t role;
    std::string name;
    std::vector<std::string> dims;
  };
  // Everything lent out; replaced, and the old memory overwritten, at each annotation.
  struct Loan {
    std::vector<tenon_value_id> ids;
    std::vector<std::vector<const char*>> names;
    std::vector<std::vector<int64_t>> sizes;
    std::vector<Value> values;
  };

  void lend() {
    if (loan != nullptr) {
      for (tenon_value_id& id : loan->ids) id = 0xdead;
      for (Value& value : loan->values) {
        for (std::string& dim : value.dims) std::fill(dim.begin(), dim.end(), '?');
      }
      retired.push_back(std::move(loan));
    }
    loan = std::make_unique<Loan>();
    loan->values = values;
    for (const Value& value : loan->values) {
      loan->ids.push_back(static_cast<tenon_value_id>(10 + loan->ids.size()));
      std::vector<const char*>& names = loan->names.emplace_back();
      for (const std::string& dim : value.dims) names.push_back(dim.empty() ? nullptr : dim.c_str());
      loan->sizes.emplace_back(value.dims.size(), 8);
    }
  }

  std::map<std::string, int64_t> axes;
  std::vector<Value> values;
  std::unique_ptr<Loan> loan;
  std::vector<std::unique_ptr<Loan>> retired;
  std::vector<std::tuple<std::string, uint32_t, std::string>> sharded;
  std::string refuse;  // the value whose sharding is refused
};

namespace tenon {
namespace {

uint32_t list_values(tenon_graph* graph, const tenon_value_id** out) {
  *out = graph->loan->ids.data();
  return static_cast<uint32_t>(graph->loan->ids.size());
}

tenon_code describe_value(tenon_graph* graph, tenon_value_id id, tenon_value_info* out, tenon_error* error) {
  const size_t i = id - 10;
  if (i >= graph->values.size()) {
    std::snprintf(error->message, sizeof error->message, "no value %u", id);
    return TENON_E_ARGUMENT;
  }
  const tenon_graph::Loan& loan = *graph->loan;
  const auto& value = loan.values[i];
  *out = {sizeof *out,
          value.role,
          value.name.c_str(),
          TENON_F32,
          static_cast<uint32_t>(value.dims.size()),
          loan.sizes[i].data(),
          loan.names[i].data(),
          -1,
          0};
  return TENON_OK;
}

int64_t axis_size(tenon_graph* graph, const char* axis) {
  const auto found = graph->axes.find(axis);
  return found == graph->axes.end() ? 0 : found->second;
}

tenon_code shard(tenon_graph* graph, tenon_value_id id, uint32_t dim, const char* axis, tenon_error* error) {
  const std::string& name = graph->values.at(id - 10).name;
  if (name == graph->refuse) {
    std::snprintf(error->message, sizeof error->message, "batch 7 is not divisible by dp 2");
    return TENON_E_RECIPE;
  }
  graph->sharded.emplace_back(name, dim, axis);
  graph->lend();
  return TENON_OK;
}

constexpr tenon_graph_api kApi = {
    sizeof(tenon_graph_api), 0,         nullptr, nullptr, nullptr, nullptr, list_values,
    describe_value,          axis_size, shard,   nullptr};

class DataParallel : public testing::Test {
 protected:
  DataParallel() {
    graph_.axes = {{"dp", 2}, {"replica", 4}};
    graph_.values = {{TENON_ROLE_INPUT, "tokens", {"batch", "seq"}},
                     {TENON_ROLE_PARAM, "table", {"batch", "hidden"}},
                     {TENON_ROLE_INPUT, "step", {}},
                     {TENON_ROLE_ACT, "x", {"batch", "seq", "hidden"}},
                     {TENON_ROLE_INPUT, "mask", {"", "seq", "batch"}},
                     {TENON_ROLE_INPUT, "bias", {"seq"}},
                     {TENON_ROLE_INPUT, "samples", {"batch"}}};
    graph_.lend();
  }
  // The message of the error, or "".
  std::string run() {
    const tenon_pass_config config = {sizeof config, options_.size(), options_.data(), &kApi};
    tenon_error error = test::empty_error();
    return pass().run(&config, &graph_, &error) == TENON_OK ? "" : error.message;
  }
  const tenon_pass& pass() const { return plugin_.table<tenon_pass>(TENON_PASS); }

  tenon_graph graph_;
  test::MockHost host_;
  test::LoadedPlugin plugin_{test::plugin_file("parallel", "data"), host_};
  test::OptionValues options_{plugin_.plugin()};
};

using Sharded = std::vector<std::tuple<std::string, uint32_t, std::string>>;

TEST_F(DataParallel, shards_the_batch_of_every_input_and_nothing_else) {
  EXPECT_EQ(run(), "");
  EXPECT_EQ(graph_.sharded, (Sharded{{"tokens", 0, "dp"}, {"mask", 2, "dp"}, {"samples", 0, "dp"}}));
}

TEST_F(DataParallel, the_axis_can_be_chosen) {
  options_.set("axis", "replica");
  EXPECT_EQ(run(), "");
  EXPECT_EQ(graph_.sharded,
            (Sharded{{"tokens", 0, "replica"}, {"mask", 2, "replica"}, {"samples", 0, "replica"}}));
}

TEST_F(DataParallel, an_axis_that_the_mesh_lacks_is_refused_by_name) {
  options_.set("axis", "data");
  EXPECT_EQ(run(), "the mesh has no axis 'data': add it to mesh, or set axis to one of its");
  EXPECT_TRUE(graph_.sharded.empty());
}

TEST_F(DataParallel, a_model_without_a_batch_is_refused) {
  graph_.values = {{TENON_ROLE_INPUT, "tokens", {"seq"}}};
  graph_.lend();
  EXPECT_EQ(run(), "no input of the model has a dimension named 'batch'");
}

TEST_F(DataParallel, what_the_core_refuses_is_passed_on) {
  graph_.refuse = "mask";
  EXPECT_EQ(run(), "batch 7 is not divisible by dp 2");
  EXPECT_EQ(graph_.sharded, (Sharded{{"tokens", 0, "dp"}}));
}

TEST_F(DataParallel, is_a_pass_of_phase_a_on_dp) {
  EXPECT_EQ(pass().phase, static_cast<uint32_t>(TENON_PHASE_A));
  EXPECT_STREQ(pass().axes, "dp");
}

}  // namespace
}  // namespace tenon
