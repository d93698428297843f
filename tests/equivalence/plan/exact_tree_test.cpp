// Exact mode without a comm plugin that reduces in the tree: exchange, additions here, gather. Its bits are
// those of the plugin's own tree and of one rank.
#include "close.hpp"
#include "recipes.hpp"

namespace tenon::test {
namespace {

struct Outcome {
  RunRecord record;
  std::map<std::string, int> transfers;  // by kind, in the train program
};

// `tree_order`: whether the comm plugin declares that it reduces in the tree.
Outcome run(int ranks, bool tree_order) {
  TinyModel tiny;
  tiny.dropout = 0.1;
  Json recipe = tiny_recipe(gpt2_model(tiny), corpus_file(), tiny.context);
  recipe["numerics"]["mode"] = "exact";
  Outcome out;
  tenon_comm table;
  RunOptions options{.ranks = ranks, .steps = 3};
  options.change_plugins = [&](PluginSet& plugins) {
    table = *plugins.comm.table;
    EXPECT_NE(table.flags & TENON_COMM_TREE_ORDER, 0u);
    if (!tree_order) table.flags &= ~TENON_COMM_TREE_ORDER;
    plugins.comm.table = &table;
  };
  options.before = [&](Session& session) -> Status {
    if (session.device().id().rank != 0) return {};
    for (const Instr& instr : session.train_program().instrs) {
      if (instr.lane != 0) ++out.transfers[instr.kind];
    }
    return {};
  };
  out.record = must_run(recipe, options);
  return out;
}

TEST(exact_mode, without_the_plugins_tree_gives_the_same_bits) {
  const Outcome one = run(1, true);
  for (int ranks : {2, 4, 8}) {
    SCOPED_TRACE(ranks);
    Outcome by_plugin = run(ranks, true), by_core = run(ranks, false);
    EXPECT_GT(by_plugin.transfers["all_reduce"], 0);
    EXPECT_FALSE(by_core.transfers.contains("all_reduce"));
    EXPECT_GT(by_core.transfers["all_to_all"], 0);
    expect_same_bits(one.record, by_plugin.record);
    expect_same_bits(one.record, by_core.record);
  }
}

}  // namespace
}  // namespace tenon::test
