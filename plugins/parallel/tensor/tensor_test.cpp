// The pass against a graph made here, whose lent arrays die at every annotation, as the interface allows.
#include "pass_case.hpp"

namespace tenon {
namespace {

using test::Sharded;
using Said = std::vector<std::pair<std::string, std::string>>;

class TensorParallel : public test::PassCase {
 protected:
  TensorParallel() : PassCase("tensor") {
    graph_.axes = {{"tp", 4}, {"inner", 3}};
    graph_.values = {{TENON_ROLE_INPUT, "tokens", {"batch", "seq"}},
                     {TENON_ROLE_PARAM, "wte", {"vocab", "hidden"}},
                     {TENON_ROLE_PARAM, "wpe", {"position", "hidden"}},
                     {TENON_ROLE_PARAM, "norm", {"hidden"}},
                     {TENON_ROLE_PARAM, "q", {"group", "rep", "head", "hidden"}},
                     {TENON_ROLE_PARAM, "o", {"hidden", "group", "rep", "head"}},
                     {TENON_ROLE_PARAM, "up", {"ffn", "hidden"}},
                     {TENON_ROLE_PARAM, "down", {"hidden", "ffn"}},
                     {TENON_ROLE_ACT, "x", {"batch", "seq", "hidden"}},
                     {TENON_ROLE_ACT, "heads", {"batch", "seq", "group", "rep", "head"}},
                     {TENON_ROLE_ACT, "logits", {"batch", "seq", "vocab"}}};
    graph_.lend();
  }
  // With keys of their own, made of x.
  void few_groups() {
    graph_.values.push_back({TENON_ROLE_PARAM, "k", {"group", "head", "hidden"}, {2, 8, 8}});
    graph_.values.push_back({TENON_ROLE_ACT, "keys", {"batch", "seq", "group", "head"}, {8, 8, 2, 8}});
    graph_.ops = {{"linear", {"x", "k"}, {"keys"}}};
    resize("q", {2, 4, 8, 8});
    resize("o", {8, 2, 4, 8});
  }
  tenon_graph::Value& value(const std::string& name) {
    return graph_.values[graph_.id_of(name) - tenon_graph::kFirstValue];
  }
  void resize(const std::string& name, std::vector<int64_t> sizes) {
    value(name).sizes = std::move(sizes);
    graph_.lend();
  }
};

const Sharded kWeights{{"wte", 0, "tp"}, {"q", 0, "tp"}, {"o", 1, "tp"}, {"up", 0, "tp"}, {"down", 1, "tp"}};

TEST_F(TensorParallel, cuts_weights_by_groups_width_and_vocabulary) {
  EXPECT_EQ(run(), "");
  EXPECT_EQ(graph_.sharded, kWeights);
}

TEST_F(TensorParallel, with_sequence_cuts_the_stream_between_the_regions_too) {
  options_.set("sequence", true);
  EXPECT_EQ(run(), "");
  Sharded all = kWeights;
  all.emplace_back("x", 1, "tp");
  EXPECT_EQ(graph_.sharded, all);
}

TEST_F(TensorParallel, without_vocabulary_leaves_embedding_and_head_whole) {
  options_.set("vocabulary", false);
  EXPECT_EQ(run(), "");
  EXPECT_EQ(graph_.sharded, Sharded(kWeights.begin() + 1, kWeights.end()));
}

// Groups of 2 on 4 ranks: each of two ranks has both query heads of a group.
TEST_F(TensorParallel, fewer_groups_than_ranks_split_the_axis) {
  few_groups();
  EXPECT_EQ(run(), "split first");
  EXPECT_EQ(graph_.split, (std::vector<std::pair<std::string, int64_t>>{{"tp", 2}}));
}

TEST_F(TensorParallel, fewer_groups_than_ranks_are_held_by_several_that_share_the_query_heads) {
  few_groups();
  graph_.axes.insert({{"tp_out", 2}, {"tp_in", 2}});
  graph_.atoms = {{"tp", {"tp_out", "tp_in"}}};
  EXPECT_EQ(run(), "");
  EXPECT_EQ(graph_.sharded, (Sharded{{"wte", 0, "tp"},
                                     {"q", 0, "tp_out"},
                                     {"q", 1, "tp_in"},
                                     {"o", 1, "tp_out"},
                                     {"o", 2, "tp_in"},
                                     {"up", 0, "tp"},
                                     {"down", 1, "tp"},
                                     {"k", 0, "tp_out"}}));
  EXPECT_EQ(graph_.late, (Said{{"keys", "tp_in"}}));
  EXPECT_EQ(graph_.replicated, Said{});
}

TEST_F(TensorParallel, with_sequence_what_shared_keys_are_made_of_is_gathered_at_once) {
  few_groups();
  options_.set("sequence", true);
  graph_.axes.insert({{"tp_out", 2}, {"tp_in", 2}});
  graph_.atoms = {{"tp", {"tp_out", "tp_in"}}};
  EXPECT_EQ(run(), "");
  EXPECT_EQ(graph_.replicated, (Said{{"x", "tp"}}));
  EXPECT_EQ(std::ranges::count(graph_.sharded, std::tuple<std::string, uint32_t, std::string>("x", 1, "tp")),
            0);
}

// All ranks hold the one group's keys and values.
TEST_F(TensorParallel, a_single_group_needs_no_split) {
  resize("q", {1, 4, 8, 8});
  resize("o", {8, 1, 4, 8});
  EXPECT_EQ(run(), "");
  EXPECT_EQ(graph_.sharded,
            (Sharded{{"wte", 0, "tp"}, {"q", 1, "tp"}, {"o", 2, "tp"}, {"up", 0, "tp"}, {"down", 1, "tp"}}));
  EXPECT_TRUE(graph_.split.empty());
}

TEST_F(TensorParallel, heads_that_cannot_be_dealt_out_are_refused_with_what_to_do) {
  resize("q", {2, 3, 8, 8});
  EXPECT_EQ(
      run(),
      "'q': 2 groups of query heads that share keys and values, 3 in each, cannot be dealt out over tp 4: "
      "use a smaller tp, or attention = \"replicate\"");
}

TEST_F(TensorParallel, heads_that_cannot_be_dealt_out_can_be_replicated) {
  resize("q", {2, 3, 8, 8});
  resize("o", {8, 2, 3, 8});
  options_.set("attention", "replicate");
  EXPECT_EQ(run(), "");
  EXPECT_EQ(graph_.sharded, (Sharded{{"wte", 0, "tp"}, {"up", 0, "tp"}, {"down", 1, "tp"}}));
}

TEST_F(TensorParallel, the_width_of_experts_can_be_cut_over_another_axis_or_none) {
  graph_.values.push_back({TENON_ROLE_PARAM, "expert_up", {"expert", "ffn", "hidden"}});
  graph_.values.push_back({TENON_ROLE_PARAM, "router", {"expert", "hidden"}});
  graph_.axes["near"] = 2;
  graph_.lend();
  const auto said = [this](const char* axis) {
    graph_.sharded.clear();
    options_.set("experts", axis);
    EXPECT_EQ(run(), "");
    Sharded more(graph_.sharded.begin() + static_cast<ptrdiff_t>(kWeights.size()), graph_.sharded.end());
    return more;
  };
  EXPECT_EQ(said(""), (Sharded{{"expert_up", 1, "tp"}}));
  EXPECT_EQ(said("near"), (Sharded{{"expert_up", 1, "near"}}));
  EXPECT_EQ(said("none"), Sharded{});
  options_.set("experts", "far");
  EXPECT_EQ(run(), "the mesh has no axis 'far': add it to mesh, or set axis to one of its");
}

TEST_F(TensorParallel, a_vocabulary_that_does_not_divide_is_refused_with_the_next_that_does) {
  resize("wte", {50257, 8});
  EXPECT_EQ(
      run(),
      "'wte': vocab 50257 is not divisible by tp 4: pad the model's vocabulary to 50260, or set vocabulary = "
      "false");
}

TEST_F(TensorParallel, a_width_that_does_not_divide_is_refused) {
  resize("up", {10, 8});
  EXPECT_EQ(run(), "'up': ffn 10 is not divisible by tp 4: choose another width, or a smaller tp");
}

TEST_F(TensorParallel, the_axis_can_be_chosen) {
  options_.set("axis", "model");
  EXPECT_EQ(run(), "the mesh has no axis 'model': add it to mesh, or set axis to one of its");
  options_.set("axis", "inner");
  EXPECT_EQ(
      run(),
      "'q': 8 groups of query heads that share keys and values, 8 in each, cannot be dealt out over inner 3: "
      "use a smaller inner, or attention = \"replicate\"");
}

TEST_F(TensorParallel, what_the_core_refuses_is_passed_on) {
  graph_.refuse = "o";
  EXPECT_EQ(run(), "'o' is not divisible by dp 2");
}

TEST_F(TensorParallel, is_a_pass_of_phase_a_on_tp) {
  EXPECT_EQ(pass().phase, static_cast<uint32_t>(TENON_PHASE_A));
  EXPECT_STREQ(pass().axes, "tp");
}

}  // namespace
}  // namespace tenon
