// Evaluation and logits: what is there for training alone is off, and what fills up a batch does not count.
#include <cmath>
#include <cstring>
#include <mutex>

#include "close.hpp"
#include "combination.hpp"

namespace tenon::test {
namespace {

const std::vector<int32_t> kPrompt{72, 101, 108, 108, 111, 44, 32, 119, 111, 114, 108, 100};

// Of a run whose parameters stay as they are.
struct Seen {
  std::vector<double> train, valid;         // losses, before the first step too
  std::vector<std::vector<double>> logits;  // of kPrompt, likewise
  std::vector<int64_t> tokens;              // of each evaluation
};

Seen watch(Json recipe, int ranks) {
  recipe["lr"] = {{"kind", "constant"}, {"value", 0.0}, {"warmup", 0}};
  Seen seen;
  const auto look = [&seen](Session& session) -> Status {
    TENON_TRY(const EvalResult eval, session.evaluate());
    TENON_TRY(auto logits, session.logits(kPrompt));
    if (session.device().id().rank != 0) return {};
    seen.valid.push_back(eval.loss);
    seen.tokens.push_back(eval.tokens);
    seen.logits.push_back(std::move(logits));
    return {};
  };
  const auto each = [&](Session& session, const StepResult& result) {
    if (session.device().id().rank == 0) seen.train.push_back(result.loss);
    return look(session).ok();
  };
  must_run(recipe, {.ranks = ranks, .steps = 2, .each_step = each, .before = look});
  EXPECT_EQ(seen.valid.size(), 3u);
  return seen;
}

void set_dropout(Json& ops, double p) {
  for (Json& op : ops) {
    if (op.contains("repeat"))
      set_dropout(op["ops"], p);
    else if (op["op"] == "dropout")
      op["attrs"]["p"] = p;
  }
}

class Dropout : public testing::TestWithParam<Combination> {};

// With p = 0 the op passes its input through.
TEST_P(Dropout, is_off_in_evaluation_and_logits) {
  Json recipe = recipe_of(GetParam(), corpus_file(), false);
  set_dropout(recipe["model"]["ops"], 0.5);
  const Seen with = watch(recipe, world_of(GetParam()));
  set_dropout(recipe["model"]["ops"], 0);
  const Seen without = watch(recipe, world_of(GetParam()));
  EXPECT_GT(std::abs(with.train.at(0) - without.train.at(0)), 1e-3) << "there is no dropout in training";
  EXPECT_EQ(with.valid, without.valid);
  EXPECT_EQ(with.valid, std::vector<double>(3, with.valid.at(0)));
  EXPECT_EQ(with.logits, without.logits);
  EXPECT_EQ(with.logits, std::vector<std::vector<double>>(3, with.logits.at(0)));
}

INSTANTIATE_TEST_SUITE_P(
    strategies, Dropout,
    testing::Values(Combination{"one", "gpt2", {{"dp", 1}}, "data"},
                    Combination{"zero3", "gpt2", {{"dp", 2}}, "data zero3"},
                    Combination{"tp", "gpt2", {{"tp", 2}}, "tensor"},
                    Combination{"sequence", "gpt2", {{"tp", 2}}, "sequence"},
                    Combination{"ring", "gpt2", {{"cp", 2}}, "ring"},
                    Combination{"pp", "gpt2", {{"pp", 2}}, "pipeline", "1f1b"},
                    Combination{"pp_tp", "gpt2", {{"pp", 2}, {"tp", 2}}, "pipeline sequence", "1f1b"}),
    [](const auto& info) { return info.param.name; });

// -- padding ------------------------------------------------------------------------------------------

// Seven samples of 75 are held out: batches of 2 to 5 end with padding.
Json held_out(Combination c, int batch) {
  Json recipe = recipe_of(c, corpus_file(), false);
  recipe["batch"] = batch;
  recipe["data"]["valid"] = 6.5 / 75;
  recipe["eval"]["batches"] = 0;
  return recipe;
}

void expect_same_loss(const Seen& one, const Seen& other) {
  EXPECT_EQ(one.tokens, other.tokens);
  for (size_t i = 0; i < one.valid.size(); ++i)
    EXPECT_NEAR(one.valid[i], other.valid.at(i), 1e-12 * one.valid[i]);
}

TEST(Padding, leaves_the_loss_of_a_mixture_of_experts_as_it_is) {
  const Seen one = watch(held_out({"", "moe", {{"dp", 1}}, "data"}, 1), 1);
  EXPECT_EQ(one.tokens.at(0), 6 * 16 + 2);  // the last sample is the end of the text
  for (int batch : {2, 3, 4, 5}) {
    SCOPED_TRACE(batch);
    expect_same_loss(one, watch(held_out({"", "moe", {{"dp", 1}}, "data"}, batch), 1));
  }
  expect_same_loss(one, watch(held_out({"", "moe", {{"dp", 2}}, "data expert"}, 4), 2));
  expect_same_loss(one, watch(held_out({"", "moe", {{"tp", 2}}, "sequence"}, 5), 2));
  expect_same_loss(one, watch(held_out({"", "moe", {{"pp", 2}}, "pipeline", "1f1b", 2}, 4), 2));
}

TEST(Padding, leaves_the_loss_of_a_dense_model_as_it_is) {
  const Seen one = watch(held_out({"", "gpt2", {{"dp", 1}}, "data"}, 1), 1);
  for (int batch : {2, 3, 4, 5}) {
    SCOPED_TRACE(batch);
    expect_same_loss(one, watch(held_out({"", "gpt2", {{"dp", 1}}, "data"}, batch), 1));
  }
  expect_same_loss(one, watch(held_out({"", "gpt2", {{"dp", 2}}, "data zero3"}, 4), 2));
  expect_same_loss(one, watch(held_out({"", "gpt2", {{"cp", 2}}, "ring"}, 5), 2));
}

// -- inputs of logits -----------------------------------------------------------------------------------

TEST(Logits, have_every_input_set) {
  std::mutex mutex;
  int ranks = 0;
  const auto look = [&](Session& session) -> Status {
    RankDevice& device = session.device();
    std::memset(device.space(Space::input), 0xA5, device.bytes(Space::input));
    TENON_CHECK(session.logits({kPrompt.begin(), kPrompt.begin() + 3}));
    const Program& program = session.programs().logits.of(device.id().rank);
    const auto at = [&](const char* name) { return device.address(program, program.inputs[0].at(name)); };
    const std::lock_guard lock(mutex);
    ++ranks;
    EXPECT_EQ(program.inputs[0].size(), 5u);
    EXPECT_EQ(*reinterpret_cast<const int64_t*>(at("samples")), -1);
    EXPECT_EQ(*reinterpret_cast<const int64_t*>(at("step")), session.steps_done() + 1);
    const auto count = program.inputs[0].at("tokens").elements();
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(reinterpret_cast<const int32_t*>(at("targets"))[i], -1);
      EXPECT_LT(static_cast<uint32_t>(reinterpret_cast<const int32_t*>(at("positions"))[i]), 16u);
      EXPECT_LT(static_cast<uint32_t>(reinterpret_cast<const int32_t*>(at("tokens"))[i]), 256u);
    }
    return {};
  };
  const Combination c{"", "gpt2", {{"cp", 2}}, "ring"};
  Json recipe = recipe_of(c, corpus_file(), false);
  must_run(recipe, {.ranks = 2, .steps = 1, .before = look, .after = look});
  EXPECT_EQ(ranks, 4);
}

}  // namespace
}  // namespace tenon::test
