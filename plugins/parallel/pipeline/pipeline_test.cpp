// The pass against a graph made here, whose lent arrays die at every annotation, as the interface allows.
#include "pass_case.hpp"

namespace tenon {
namespace {

// An op in front of the layers, two for each layer, one behind them.
class Pipeline : public test::PassCase {
 protected:
  Pipeline() : PassCase("pipeline") {
    graph_.axes = {{"pp", 2}, {"dp", 2}, {"pp4", 4}};
    layers({1, 1, 1, 1, 1}, 1, 1);
  }
  // A model with as many layers as `flops`.
  void layers(const std::vector<double>& flops, double front, double behind) {
    graph_.values = {{TENON_ROLE_ACT, "x", {"batch"}}, {TENON_ROLE_ACT, "logits", {"batch"}}};
    graph_.ops = {{"embedding", {}, {"x"}, front}};
    for (size_t i = 0; i < flops.size(); ++i) {
      const std::string name = "y" + std::to_string(i);
      graph_.values.push_back({TENON_ROLE_ACT, name, {"batch"}, {}, static_cast<int32_t>(i)});
      graph_.ops.push_back({"linear", {}, {name}, flops[i] / 2});
      graph_.ops.push_back({"gelu", {}, {name}, flops[i] / 2});
    }
    graph_.ops.push_back({"head", {}, {"logits"}, behind});
    graph_.lend();
  }
  // The stages of the ops in order: "0 00 00 11 1", a group for what is in front, each layer, and behind.
  std::string stages() {
    const std::string message = run();
    if (!message.empty()) return message;
    std::string out;
    for (size_t i = 0; i < graph_.staged.size(); ++i) {
      out += i % 2 == 1 ? " " : "";
      out += std::to_string(std::get<1>(graph_.staged[i]));
    }
    return out;
  }
};

TEST_F(Pipeline, gives_stages_equal_numbers_of_layers_and_the_rest_to_the_first) {
  EXPECT_EQ(stages(), "0 00 00 00 11 11 1");
  EXPECT_EQ(std::get<2>(graph_.staged[0]), "pp");
  EXPECT_EQ(std::get<0>(graph_.staged.back()), "head");
}

TEST_F(Pipeline, can_have_several_stages_on_a_rank) {
  options_.set("stages_per_rank", 2);
  EXPECT_EQ(stages(), "0 00 00 11 22 33 3");
}

TEST_F(Pipeline, by_cost_counts_embedding_and_head) {
  options_.set("balance", "cost");
  layers({2, 2, 2, 2, 2}, 0, 6);
  EXPECT_EQ(stages(), "0 00 00 00 00 11 1");
  graph_.staged.clear();
  layers({2, 2, 2, 2, 2}, 6, 0);
  EXPECT_EQ(stages(), "0 00 11 11 11 11 1");
}

TEST_F(Pipeline, by_cost_puts_the_most_expensive_stage_as_low_as_it_goes) {
  options_.set("balance", "cost");
  options_.set("axis", "pp4");
  layers({8, 1, 1, 1, 1, 4, 4}, 0, 0);
  EXPECT_EQ(stages(), "0 00 11 11 11 11 22 33 3");
}

TEST_F(Pipeline, layers_can_be_given_by_hand) {
  options_.set("layers", "1,4");
  EXPECT_EQ(stages(), "0 00 11 11 11 11 1");
}

TEST_F(Pipeline, layers_by_hand_that_do_not_add_up_are_refused) {
  options_.set("layers", "1,2,2");
  EXPECT_EQ(stages(),
            "layers = \"1,2,2\" names 3 stages with 5 layers; the pipeline has 2 stages, the model 5 layers: "
            "give 2 numbers that add up to 5");
  options_.set("layers", "2,2");
  EXPECT_EQ(stages(),
            "layers = \"2,2\" names 2 stages with 4 layers; the pipeline has 2 stages, the model 5 layers: "
            "give 2 numbers that add up to 5");
}

TEST_F(Pipeline, embedding_and_head_can_have_stages_of_their_own) {
  options_.set("axis", "pp4");
  const std::map<std::string, std::string> said{
      {"embedding", "0 11 11 22 22 33 3"}, {"head", "0 00 00 11 11 22 3"}, {"both", "0 11 11 11 22 22 3"}};
  for (const auto& [what, expected] : said) {
    SCOPED_TRACE(what);
    options_.set("apart", what.c_str());
    EXPECT_EQ(stages(), expected);
    graph_.staged.clear();
  }
  options_.set("apart", "both");
  options_.set("balance", "cost");  // what is apart does not count
  layers({1, 1, 1, 1, 4}, 100, 100);
  EXPECT_EQ(stages(), "0 11 11 11 11 22 3");
}

TEST_F(Pipeline, layers_by_hand_can_leave_the_ends_without_layers) {
  options_.set("axis", "pp4");
  options_.set("layers", "0,2,3,0");
  EXPECT_EQ(stages(), "0 11 11 22 22 22 3");
  graph_.staged.clear();
  options_.set("layers", "2,0,3,0");
  EXPECT_EQ(stages(),
            "layers = \"2,0,3,0\": only the first and the last stage, which have embedding and head, can be "
            "without layers");
}

TEST_F(Pipeline, stages_apart_that_leave_none_for_the_layers_or_too_many_are_refused) {
  options_.set("apart", "both");
  EXPECT_EQ(stages(), "apart = \"both\" with 2 stages leaves none for the layers: use at least 3 stages");
  options_.set("stages_per_rank", 4);
  EXPECT_EQ(stages(), "6 stages for 5 layers: use at most 7 stages");
}

TEST_F(Pipeline, a_stage_apart_with_nothing_to_do_is_refused) {
  options_.set("axis", "pp4");
  options_.set("apart", "embedding");
  graph_.ops.erase(graph_.ops.begin());
  graph_.lend();
  EXPECT_EQ(stages(),
            "a stage without layers has nothing to do: the model has no ops in front of its first layer");
}

TEST_F(Pipeline, layers_by_hand_that_are_no_numbers_are_refused) {
  for (const char* text : {"a,b", "2;3", "-1,6", "3,"}) {
    options_.set("layers", text);
    EXPECT_EQ(stages(), std::string("layers = \"") + text +
                            "\": numbers of layers separated by commas, for instance \"3,2,2,1\"");
  }
}

TEST_F(Pipeline, more_stages_than_layers_are_refused) {
  options_.set("stages_per_rank", 3);
  EXPECT_EQ(stages(), "6 stages for 5 layers: use at most 5 stages");
}

TEST_F(Pipeline, an_axis_that_the_mesh_lacks_is_refused_by_name) {
  options_.set("axis", "stages");
  EXPECT_EQ(stages(), "the mesh has no axis 'stages': add it to mesh, or set axis to one of its");
}

TEST_F(Pipeline, is_a_pass_of_phase_a_on_pp) {
  EXPECT_EQ(pass().phase, static_cast<uint32_t>(TENON_PHASE_A));
  EXPECT_STREQ(pass().axes, "pp");
}

}  // namespace
}  // namespace tenon
