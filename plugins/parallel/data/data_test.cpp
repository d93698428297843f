// The pass against a graph made here, whose lent arrays die at every annotation, as the interface allows.
#include "pass_case.hpp"

namespace tenon {
namespace {

using test::Sharded;

class DataParallel : public test::PassCase {
 protected:
  DataParallel() : PassCase("data") {
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
};

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
  EXPECT_EQ(run(), "'mask' is not divisible by dp 2");
  EXPECT_EQ(graph_.sharded, (Sharded{{"tokens", 0, "dp"}}));
}

TEST_F(DataParallel, is_a_pass_of_phase_a_on_dp) {
  EXPECT_EQ(pass().phase, static_cast<uint32_t>(TENON_PHASE_A));
  EXPECT_STREQ(pass().axes, "dp");
}

}  // namespace
}  // namespace tenon
