// Simulated times of rows written by hand, against times counted by hand.
#include "plan/rows/times.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tenon {
namespace {

Rows parse(const std::vector<std::string>& texts, int microbatches) {
  auto rows = parse_rows(Json(texts), microbatches, "/rows");
  if (!rows.ok()) throw std::runtime_error(rows.error().text());
  return std::move(rows).value();
}

// "0-1 1-2 5-7" rank by rank.
std::vector<std::string> times_of(const RowSimulation& simulation) {
  std::vector<std::string> out;
  for (const auto& rank : simulation.of_rank) {
    std::string& text = out.emplace_back();
    for (const RowTime& time : rank) {
      if (!text.empty()) text += ' ';
      text += std::to_string(time.start) + '-' + std::to_string(time.end);
    }
  }
  return out;
}

using Texts = std::vector<std::string>;

TEST(RowTimes, of_1f1b_on_two_ranks) {
  const Rows rows = parse({"F0.0 F0.1 B0.0 B0.1", "F1.0 B1.0 F1.1 B1.1"}, 2);
  const RowSimulation unit = simulate(rows, RowCost{});
  EXPECT_EQ(times_of(unit), (Texts{"0-1 1-2 4-6 7-9", "1-2 2-4 4-5 5-7"}));
  EXPECT_EQ(unit.duration, 9);
  EXPECT_DOUBLE_EQ(unit.idle_fraction, 6.0 / 18);
  EXPECT_EQ(unit.activations, (std::vector<int>{2, 1}));
}

TEST(RowTimes, with_costs_that_differ) {
  const Rows rows = parse({"F0.0 I0.0 W0.0", "F1.0 I1.0 W1.0"}, 1);
  const RowSimulation simulation = simulate(rows, {10, 20, 5});
  EXPECT_EQ(times_of(simulation), (Texts{"0-10 40-60 60-65", "10-20 20-40 40-45"}));
  EXPECT_DOUBLE_EQ(simulation.idle_fraction, 60.0 / 130);
}

TEST(RowTimes, of_interleaved_rows_are_one) {
  // F0.1 could start at 1 on its own; with B1.0, which waits for F1.0, it starts later, and both end
  // together.
  const Rows rows = parse({"F0.0 F1.0 F0.1&B1.0 F1.1&B0.0 B1.1 B0.1"}, 2);
  const RowSimulation simulation = simulate(rows, RowCost{});
  EXPECT_EQ(times_of(simulation), (Texts{"0-1 1-2 2-5 2-5 5-8 5-8 8-10 10-12"}));
  EXPECT_EQ(simulation.duration, 12);
  EXPECT_DOUBLE_EQ(simulation.idle_fraction, 0);
  EXPECT_EQ(simulation.activations, (std::vector<int>{3}));
}

TEST(RowTimes, activations_live_from_forward_to_weight_gradient) {
  EXPECT_EQ(simulate(parse({"F0.0 F0.1 I0.0 I0.1 W0.0 F0.2 W0.1 I0.2 W0.2"}, 3), RowCost{}).activations,
            (std::vector<int>{2}));
  EXPECT_EQ(simulate(parse({"F0.0 F0.1 I0.0 I0.1 F0.2 W0.0 W0.1 B0.2"}, 3), RowCost{}).activations,
            (std::vector<int>{3}));
  EXPECT_EQ(simulate(parse({"F0.0 F0.1 I0.0 I0.1 W0.0&W0.1 F0.2 F0.3 F0.4 B0.2 B0.3 B0.4"}, 5), RowCost{})
                .activations,
            (std::vector<int>{3}));
}

TEST(LinearOrder, goes_by_time_then_by_rank) {
  const Rows rows = parse({"F0.0 F0.1 B0.0 B0.1", "F1.0 B1.0 F1.1 B1.1"}, 2);
  std::string order;
  for (const RowRef& ref : linear_order(rows)) {
    order += text_of(rows.of_rank[static_cast<size_t>(ref.rank)][static_cast<size_t>(ref.row)]) + ' ';
  }
  EXPECT_EQ(order, "F0.0 F0.1 F1.0 B1.0 B0.0 F1.1 B1.1 B0.1 ");
}

}  // namespace
}  // namespace tenon
