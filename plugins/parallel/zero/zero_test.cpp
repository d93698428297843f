// The pass against a graph made here, whose lent arrays die at every annotation, as the interface allows.
#include "pass_case.hpp"

namespace tenon {
namespace {

using test::Stored;

class Zero : public test::PassCase {
 protected:
  Zero() : PassCase("zero") {
    graph_.axes = {{"dp", 4}, {"dp_in", 2}};
    graph_.values = {{TENON_ROLE_INPUT, "tokens", {"batch", "seq"}},
                     {TENON_ROLE_PARAM, "wte", {"vocab", "hidden"}},
                     {TENON_ROLE_ACT, "x", {"batch", "seq", "hidden"}},
                     {TENON_ROLE_PARAM, "norm", {"hidden"}}};
    graph_.lend();
  }
};

TEST_F(Zero, lets_every_parameter_rest_in_parts_and_nothing_else) {
  EXPECT_EQ(run(), "");
  EXPECT_EQ(graph_.stored, (Stored{{"wte", 1, "dp"}, {"norm", 1, "dp"}}));
  EXPECT_TRUE(graph_.sharded.empty());
}

TEST_F(Zero, the_stage_can_be_chosen) {
  options_.set("stage", 3);
  EXPECT_EQ(run(), "");
  EXPECT_EQ(graph_.stored, (Stored{{"wte", 3, "dp"}, {"norm", 3, "dp"}}));
}

TEST_F(Zero, a_sub_axis_can_be_chosen) {
  options_.set("axis", "dp_in");
  EXPECT_EQ(run(), "");
  EXPECT_EQ(graph_.stored, (Stored{{"wte", 1, "dp_in"}, {"norm", 1, "dp_in"}}));
}

TEST_F(Zero, gathers_can_stay_within_a_sub_axis_at_stage_3) {
  options_.set("stage", 3);
  options_.set("within", "dp_in");
  EXPECT_EQ(run(), "");
  EXPECT_EQ(graph_.stored, (Stored{{"wte", 3, "dp within dp_in"}, {"norm", 3, "dp within dp_in"}}));
}

TEST_F(Zero, an_axis_that_the_mesh_lacks_is_refused_by_name) {
  options_.set("axis", "data");
  EXPECT_EQ(run(), "the mesh has no axis 'data': add it to mesh, or set axis to one of its");
  EXPECT_TRUE(graph_.stored.empty());
}

TEST_F(Zero, is_a_pass_of_phase_b_that_needs_data_parallelism) {
  EXPECT_EQ(pass().phase, static_cast<uint32_t>(TENON_PHASE_B));
  EXPECT_EQ(pass().axes, nullptr);
  EXPECT_STREQ(pass().needs, "data");
}

}  // namespace
}  // namespace tenon
