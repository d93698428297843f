// The pass against a graph made here, whose lent arrays die at every annotation, as the interface allows.
#include "pass_case.hpp"

namespace tenon {
namespace {

using test::Sharded;
using Substituted = std::vector<std::pair<std::string, std::string>>;

class ContextParallel : public test::PassCase {
 protected:
  ContextParallel() : PassCase("context") {
    graph_.axes = {{"cp", 4}, {"ring", 3}};
    const std::vector<std::string> keys{"batch", "seq", "group", "head"};
    graph_.values = {{TENON_ROLE_INPUT, "tokens", {"batch", "seq"}},
                     {TENON_ROLE_INPUT, "positions", {"batch", "seq"}},
                     {TENON_ROLE_INPUT, "step", {}},
                     {TENON_ROLE_PARAM, "wpe", {"seq", "hidden"}},
                     {TENON_ROLE_ACT, "q", {"batch", "seq", "group", "rep", "head"}},
                     {TENON_ROLE_ACT, "k", keys},
                     {TENON_ROLE_ACT, "v", keys},
                     {TENON_ROLE_ACT, "o", {"batch", "seq", "group", "rep", "head"}},
                     {TENON_ROLE_ACT, "y", {"batch", "seq", "hidden"}}};
    graph_.ops = {{"embedding", {"positions", "wpe"}, {"y"}},
                  {"attention", {"q", "k", "v", "positions", "positions"}, {"o"}}};
    graph_.lend();
  }
};

const Sharded kInputs{{"tokens", 1, "cp"}, {"positions", 1, "cp"}};

TEST_F(ContextParallel, cuts_the_sequence_of_every_input_and_makes_attention_a_ring) {
  EXPECT_EQ(run(), "");
  EXPECT_EQ(graph_.sharded, kInputs);
  EXPECT_EQ(graph_.substituted, (Substituted{{"o", "attention_ring"}}));
}

// Gathering keys and values is what the core does without being told.
TEST_F(ContextParallel, by_all_gather_says_nothing_about_attention) {
  options_.set("exchange", "all_gather");
  EXPECT_EQ(run(), "");
  EXPECT_EQ(graph_.sharded, kInputs);
  EXPECT_EQ(graph_.substituted, Substituted{});
}

TEST_F(ContextParallel, by_all_to_all_cuts_heads_within_attention) {
  options_.set("exchange", "all_to_all");
  EXPECT_EQ(run(), "");
  Sharded all = kInputs;
  all.insert(all.end(), {{"q", 2, "cp"}, {"k", 2, "cp"}, {"v", 2, "cp"}, {"o", 1, "cp"}});
  EXPECT_EQ(graph_.sharded, all);
  EXPECT_EQ(graph_.substituted, Substituted{});
}

TEST_F(ContextParallel, heads_that_do_not_divide_are_refused_with_what_to_do) {
  options_.set("exchange", "all_to_all");
  options_.set("axis", "ring");
  EXPECT_EQ(run(), "'q': 8 groups of heads are not divisible by ring 3: use exchange = \"ring\"");
  options_.set("exchange", "ring");
  EXPECT_EQ(run(), "");
}

TEST_F(ContextParallel, an_axis_that_the_mesh_lacks_is_refused_by_name) {
  options_.set("axis", "sp");
  EXPECT_EQ(run(), "the mesh has no axis 'sp': add it to mesh, or set axis to one of its");
}

TEST_F(ContextParallel, a_model_without_a_sequence_is_refused) {
  graph_.values = {{TENON_ROLE_INPUT, "tokens", {"batch"}}};
  graph_.lend();
  EXPECT_EQ(run(), "no input of the model has a dimension named 'seq'");
}

TEST_F(ContextParallel, is_a_pass_of_phase_a_on_cp) {
  EXPECT_EQ(pass().phase, static_cast<uint32_t>(TENON_PHASE_A));
  EXPECT_STREQ(pass().axes, "cp");
}

}  // namespace
}  // namespace tenon
