// Lanes and their windows: no order of a pipeline's work makes ranks wait for each other, however small the
// window; every wait is needed; and where one bucket is reduced, another is worked on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"
#include "plan/finish/waits.h"
#include "strategy_programs.hpp"

namespace tenon::test {
namespace {

Json pipeline(int ranks, int stages, int microbatches) {
  Combination c{"pipeline", "gpt2 untied", {{"pp", ranks}}, stages > ranks ? "pipeline2" : "pipeline"};
  c.microbatches = microbatches;
  c.layers = stages;
  Json out = recipe_of(c, "none", false);
  out["batch"] = microbatches;
  return out;
}

Compiled compiled(const Json& document, int ranks, LaneWindow window) {
  return compile_document(document, ranks, [&](CompileOptions& options) { options.window = window; });
}
Compiled compiled(const Json& document, int ranks, uint32_t transfers) {
  return compiled(document, ranks, LaneWindow{transfers});
}

// compile_document() throws what the checks refuse.
TEST(Windows, of_every_schedule_are_proved_free_of_deadlock) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved", "zb-v", "dualpipe-v"}) {
    const bool two = schedule == std::string("interleaved") || std::string(schedule).ends_with("-v");
    for (int ranks : {2, 4}) {
      for (int microbatches : {2 * ranks, 5 * ranks}) {
        for (uint32_t window : {1u, 3u}) {
          SCOPED_TRACE(
              fmt::format("{}, {} ranks, {} microbatches, window {}", schedule, ranks, microbatches, window));
          Json document = pipeline(ranks, two ? 2 * ranks : ranks, microbatches);
          document["schedule"] = {{"plugin", fmt::format("schedule/{}", schedule)},
                                  {"options", Json::object()}};
          EXPECT_NO_THROW(compiled(document, ranks, window));
        }
      }
    }
  }
}

// How many values of a lane have a receive posted, and have not been used, at most.
size_t most_unused(const Program& program, uint32_t lane) {
  size_t most = 0;
  std::set<BufferId> unused;
  for (const Instr& instr : program.instrs) {
    for (const Operand& operand : instr.in) unused.erase(operand.buffer);
    if (instr.lane == lane) unused.insert(instr.out[0].buffer);
    most = std::max(most, unused.size());
  }
  return most;
}

// What comes once per step, behind the rows, is used at once or never.
TEST(Windows, hold_what_is_received_ahead_of_its_use) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    for (uint32_t window : {1u, 2u}) {
      SCOPED_TRACE(fmt::format("{}, window {}", schedule, window));
      Json document = pipeline(4, 4, 16);
      document["schedule"] = {{"plugin", fmt::format("schedule/{}", schedule)}, {"options", Json::object()}};
      const Compiled made = compiled(document, 4, window);
      size_t most = 0;
      for (const Program& program : made.programs) {
        for (uint32_t lane = 1; lane < program.lanes.size(); ++lane)
          if (program.lanes[lane].starts_with("recv")) most = std::max(most, most_unused(program, lane));
      }
      EXPECT_EQ(most, window);
    }
  }
}

// Rows in any order that their needs allow.
class AnyOrder {
 public:
  AnyOrder(uint64_t seed, int ranks, int stages, int microbatches)
      : seed_(seed), stages_(stages), microbatches_(microbatches), rows_(static_cast<size_t>(ranks)) {
    for (int stage = 0; stage < stages; ++stage)
      owner_.push_back(draw(2) == 0 ? stage % ranks : ranks - 1 - stage % ranks);
    for (int rank = 0; rank < ranks; ++rank) owner_[static_cast<size_t>(rank)] = rank;
    done_.assign(2, std::vector<int>(static_cast<size_t>(stages * microbatches)));
  }

  Json rows() {
    while (true) {
      std::vector<std::pair<bool, int>> ready;  // backward, work
      for (int work = 0; work < stages_ * microbatches_; ++work) {
        if (is_ready(false, work)) ready.emplace_back(false, work);
        if (is_ready(true, work)) ready.emplace_back(true, work);
      }
      if (ready.empty()) break;
      const auto [backward, work] = ready[draw(ready.size())];
      done_[backward][static_cast<size_t>(work)] = 1;
      std::string& row = rows_[static_cast<size_t>(owner_[static_cast<size_t>(work % stages_)])];
      row += fmt::format("{}{}{}.{}", row.empty() ? "" : " ", backward ? 'B' : 'F', work % stages_,
                         work / stages_);
    }
    Json out = Json::array();
    for (const std::string& row : rows_) out.push_back(row);
    return out;
  }

 private:
  size_t draw(size_t n) {
    return std::min(n - 1, static_cast<size_t>(uniform_at(seed_, drawn_++) * static_cast<double>(n)));
  }
  bool is_done(bool backward, int work) const { return done_[backward][static_cast<size_t>(work)] == 1; }
  bool is_ready(bool backward, int work) const {
    if (is_done(backward, work)) return false;
    const int stage = work % stages_;
    if (!backward) return stage == 0 || is_done(false, work - 1);
    return is_done(false, work) && (stage + 1 == stages_ || is_done(true, work + 1));
  }

  uint64_t seed_, drawn_ = 0;
  int stages_, microbatches_;
  std::vector<int> owner_;
  std::vector<std::string> rows_;
  std::vector<std::vector<int>> done_;
};

TEST(Windows, of_rows_in_any_order_are_proved_free_of_deadlock) {
  constexpr uint64_t kOrders = 30;
  for (uint64_t seed = 0; seed < kOrders; ++seed) {
    const int ranks = 2 + static_cast<int>(seed % 3), stages = seed % 2 == 0 ? ranks : 2 * ranks;
    Json document = pipeline(ranks, stages, 12);
    document["schedule"] = {{"rows", AnyOrder(seed, ranks, stages, 12).rows()}};
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, document["schedule"].dump()));
    for (const LaneWindow window : {LaneWindow{1}, LaneWindow{3}, LaneWindow{8, 5000}})
      EXPECT_NO_THROW(compiled(document, ranks, window));
  }
}

const Combination kCombinations[] = {
    {"zero1", "gpt2", {{"dp", 4}}, "data zero1"},
    {"zero3", "gpt2", {{"dp", 4}}, "data zero3", "", 4},
    {"near", "gpt2", {{"dp_out", 2}, {"dp_in", 2}}, "data zero3:dp/dp_in", "", 2},
    {"ring", "llama", {{"cp", 4}}, "ring"},
    {"tp", "llama", {{"tp", 2}}, "sequence", "", 2},
    {"pipeline", "gpt2", {{"pp", 2}, {"dp", 2}}, "pipeline data zero2", "1f1b", 8},
    {"dualpipe", "gpt2", {{"pp", 2}, {"tp", 2}}, "pipeline2 sequence", "dualpipe-v", 4, 4},
};

class Waits : public testing::TestWithParam<Combination> {};

TEST_P(Waits, are_each_needed) {
  Json document = recipe_of(GetParam(), "none", false);
  document["batch"] = 16;
  for (const uint32_t window : {1u, 3u}) {
    const Compiled made = compiled(document, world_of(GetParam()), window);
    Program program = made.programs.back();
    int windows = 0, edges = 0;
    for (InstrId id = 0; id < program.instrs.size(); ++id) {
      const std::vector<InstrId> waits = program.instrs[id].waits;
      for (InstrId wait : waits) {
        std::erase(program.instrs[id].waits, wait);
        const bool race = !check_races(program).ok(), beyond = !check_windows(program).ok();
        EXPECT_TRUE(race || beyond) << id << " no longer waits for " << wait << " (window " << window << ")";
        windows += beyond && !race ? 1 : 0;
        ++edges;
        program.instrs[id].waits = waits;
      }
    }
    EXPECT_GT(edges, 4);
    if (window == 1) {
      EXPECT_GT(windows, 0) << "no wait is the window's";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(combinations, Waits, testing::ValuesIn(kCombinations),
                         [](const auto& info) { return info.param.name; });

// Between the start of a bucket's reduction and whatever waits for it, gradients of the next one are
// computed.
TEST(Windows, leave_work_beside_the_reduction_of_each_microbatch) {
  constexpr int kMicrobatches = 4;
  for (const auto& [words, without] : {std::pair{"data zero2", 1}, {"data zero3", kMicrobatches}}) {
    Combination c{"beside", "gpt2", {{"dp", 4}}, words};
    c.microbatches = kMicrobatches;
    Json document = recipe_of(c, "none", false);
    document["batch"] = 16;
    const Program program = compile_document(document, 4).programs.front();
    const Order order(program);
    int reductions = 0, beside = 0;
    for (InstrId id = 0; id < program.instrs.size(); ++id) {
      if (program.instrs[id].kind != "reduce_scatter") continue;
      ++reductions;
      const auto from = program.instrs.begin() + id, to = program.instrs.begin() + order.behind(id);
      beside += std::any_of(from, to,
                            [](const Instr& instr) { return instr.kind.find("grad") != std::string::npos; });
    }
    EXPECT_GE(reductions, 16);
    EXPECT_EQ(beside, reductions - without) << words;
  }
}

}  // namespace
}  // namespace tenon::test
