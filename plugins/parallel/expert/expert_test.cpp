// The pass against a graph made here, whose lent arrays die at every annotation, as the interface allows.
#include "pass_case.hpp"

namespace tenon {
namespace {

using test::Sharded;

class ExpertParallel : public test::PassCase {
 protected:
  ExpertParallel() : PassCase("expert") {
    graph_.axes = {{"dp", 2}, {"ep", 4}};
    graph_.values = {{TENON_ROLE_INPUT, "tokens", {"batch", "seq"}},
                     {TENON_ROLE_PARAM, "table", {"expert", "hidden"}},
                     {TENON_ROLE_ACT, "x", {"batch", "seq", "hidden"}},
                     {TENON_ROLE_PARAM, "router", {"expert", "hidden"}},
                     {TENON_ROLE_PARAM, "up", {"expert", "ffn", "hidden"}},
                     {TENON_ROLE_ACT, "d", {"batch", "routing_group", "expert", "slot", "hidden"}},
                     {TENON_ROLE_PARAM, "down", {"hidden", "", "expert"}},
                     {TENON_ROLE_PARAM, "shared", {"hidden", "ffn"}},
                     {TENON_ROLE_ACT, "made", {"expert", "ffn"}}};
    graph_.ops = {{"embedding", {"tokens", "table"}}, {"linear", {"x", "router"}},
                  {"grouped_linear", {"d", "up"}},    {"grouped_linear", {"d", "down"}},
                  {"grouped_linear", {"d", "up"}},    {"grouped_linear", {"d", "shared"}},
                  {"grouped_linear", {"d", "made"}}};
    graph_.lend();
  }
};

TEST_F(ExpertParallel, shards_the_experts_of_their_weights_once_and_nothing_else) {
  EXPECT_EQ(run(), "");
  EXPECT_EQ(graph_.sharded, (Sharded{{"up", 0, "dp"}, {"down", 2, "dp"}}));
}

TEST_F(ExpertParallel, the_axis_can_be_chosen) {
  options_.set("axis", "ep");
  EXPECT_EQ(run(), "");
  EXPECT_EQ(graph_.sharded, (Sharded{{"up", 0, "ep"}, {"down", 2, "ep"}}));
}

TEST_F(ExpertParallel, an_axis_that_the_mesh_lacks_is_refused_by_name) {
  options_.set("axis", "experts");
  EXPECT_EQ(run(), "the mesh has no axis 'experts': add it to mesh, or set axis to one of its");
  EXPECT_TRUE(graph_.sharded.empty());
}

TEST_F(ExpertParallel, a_model_without_experts_is_refused) {
  graph_.ops.resize(2);  // a router alone
  graph_.lend();
  EXPECT_EQ(
      run(),
      "the model has no experts (no grouped_linear has a weight with a dimension named 'expert'): remove the "
      "strategy, or use a model that has some");
}

TEST_F(ExpertParallel, what_the_core_refuses_is_passed_on) {
  graph_.refuse = "down";
  EXPECT_EQ(run(), "'down' is not divisible by dp 2");
  EXPECT_EQ(graph_.sharded, (Sharded{{"up", 0, "dp"}}));
}

TEST_F(ExpertParallel, is_a_pass_of_phase_a_that_defines_no_axis) {
  EXPECT_EQ(pass().phase, static_cast<uint32_t>(TENON_PHASE_A));
  EXPECT_EQ(pass().axes, nullptr);
}

}  // namespace
}  // namespace tenon
