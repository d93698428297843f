// Exact mode without a comm plugin that reduces in the tree: exchange, additions here, gather. Its bits are
// those of the plugin's own tree and of one rank.
#include <gtest/gtest.h>

#include <fstream>

#include "recipes.hpp"
#include "run/rendezvous/memory_rendezvous.h"
#include "virtual_run.hpp"

namespace tenon::test {
namespace {

constexpr int kSteps = 3;

std::string corpus() {
  const std::string file = testing::TempDir() + "tenon_exact_tree_corpus.txt";
  std::ofstream out(file, std::ios::binary);
  for (int i = 0; i < 1187; ++i) out.put(static_cast<char>('a' + (i * i * 7 + i / 3) % 26));
  return file;
}

Json recipe() {
  TinyModel tiny;
  tiny.dropout = 0.1;
  Json out = tiny_recipe(gpt2_model(tiny), corpus(), tiny.context);
  out["numerics"]["mode"] = "exact";
  return out;
}

struct Outcome {
  std::vector<double> numbers;  // loss and norm of each step
  std::map<std::string, Bytes> tensors;
  std::map<std::string, int> transfers;  // by kind, in the train program
};

Status train(const Recipe& recipe, const PluginSet& plugins, const SessionOptions& options, Outcome* out) {
  TENON_TRY(const auto session, Session::open(recipe, plugins, options));
  for (const Instr& instr : session->train_program().instrs) {
    if (instr.lane != 0 && out != nullptr) ++out->transfers[instr.kind];
  }
  for (int step = 0; step < kSteps; ++step) {
    TENON_TRY(const StepResult result, session->step());
    if (out == nullptr) continue;
    out->numbers.insert(out->numbers.end(), {result.loss, result.grad_norm});
    for (const TensorInfo& param : session->params()) {
      const char* at = session->gradient(param.name).data;
      out->tensors["step " + std::to_string(step) + " gradient of " + param.name] =
          Bytes(at, at + param.operand.bytes());
    }
  }
  for (const auto* list : {&session->params(), &session->states()}) {
    for (const TensorInfo& tensor : *list) {
      if (out != nullptr) out->tensors[tensor.name] = copy_of(*session, tensor);
    }
  }
  return {};
}

// Trains on virtual ranks; `tree_order`: what the comm plugin is made to declare.
Outcome run(int ranks, bool tree_order) {
  Outcome out;
  PluginRegistry registry(test_registry());
  const auto read = read_recipe(recipe());
  EXPECT_TRUE(read.ok());
  auto loaded = load_plugins(registry, *read);
  EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().text());
  PluginSet plugins = std::move(loaded).value();
  EXPECT_NE(plugins.comm.table->flags & TENON_COMM_TREE_ORDER, 0u);
  tenon_comm table = *plugins.comm.table;
  if (!tree_order) table.flags &= ~TENON_COMM_TREE_ORDER;
  plugins.comm.table = &table;
  run::MemoryRendezvous rendezvous;
  std::vector<Status> outcomes(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      SessionOptions options;
      options.id = {rank, ranks};
      options.rendezvous = ranks > 1 ? &rendezvous : nullptr;
      options.root = ".";
      options.timeout_ns = 60'000'000'000;
      Status& mine = outcomes[static_cast<size_t>(rank)];
      mine = train(*read, plugins, options, rank == 0 ? &out : nullptr);
      if (!mine.ok()) rendezvous.abort("rank " + std::to_string(rank) + " failed");
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& outcome : outcomes)
    EXPECT_TRUE(outcome.ok()) << (outcome.ok() ? "" : outcome.error().text());
  return out;
}

TEST(exact_mode, without_the_plugins_tree_gives_the_same_bits) {
  const Outcome one = run(1, true);
  ASSERT_EQ(one.numbers.size(), 2u * kSteps);
  for (int ranks : {2, 4, 8}) {
    const std::string what = std::to_string(ranks) + " ranks";
    const Outcome by_plugin = run(ranks, true), by_core = run(ranks, false);
    EXPECT_GT(by_plugin.transfers.at("all_reduce"), 0) << what;
    EXPECT_FALSE(by_core.transfers.contains("all_reduce")) << what;
    EXPECT_GT(by_core.transfers.at("all_to_all"), 0) << what;
    EXPECT_EQ(by_plugin.numbers, one.numbers) << what;
    EXPECT_EQ(by_core.numbers, one.numbers) << what;
    EXPECT_EQ(by_core.tensors.size(), one.tensors.size());
    for (const auto& [name, bytes] : one.tensors) {
      EXPECT_EQ(by_plugin.tensors.at(name), bytes) << name << " on " << what << ", tree of the plugin";
      EXPECT_EQ(by_core.tensors.at(name), bytes) << name << " on " << what << ", tree of the core";
    }
  }
}

}  // namespace
}  // namespace tenon::test
