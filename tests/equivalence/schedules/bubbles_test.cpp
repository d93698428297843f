// The bubble of every schedule over ranks and microbatches: F = I = W = 1, no transfer time, one step on its
// own.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "enumeration.h"
#include "schedule_case.hpp"

namespace tenon::test {
namespace {

constexpr int kMaxRanks = 8;

std::vector<int> microbatches_for(int ranks) {
  std::vector<int> out;
  for (int m = 1; m <= 2 * ranks + 1; ++m) out.push_back(m);
  for (const int m : {3 * ranks, 4 * ranks, 4 * ranks + 1}) out.push_back(m);
  return out;
}

// Calls visit(ranks, microbatches, simulation) over the grid.
template <class Visit>
void over_grid(const char* name, int stages_per_rank, Visit visit) {
  const ScheduleCase schedule(name);
  for (int ranks = 1; ranks <= kMaxRanks; ++ranks) {
    for (const int microbatches : microbatches_for(ranks)) {
      SCOPED_TRACE(testing::Message() << name << ": " << ranks << " ranks, " << stages_per_rank
                                      << " stages each, " << microbatches << " microbatches");
      visit(ranks, microbatches,
            simulate(schedule.rows(ranks, ranks * stages_per_rank, microbatches), RowCost{}));
    }
  }
}

double idle_of(int64_t duration, int64_t busy) {
  return static_cast<double>(duration - busy) / static_cast<double>(duration);
}

TEST(Bubbles, gpipe_and_1f1b) {
  for (const char* name : {"gpipe", "1f1b"}) {
    over_grid(name, 1, [](int p, int m, const RowSimulation& simulation) {
      EXPECT_EQ(simulation.duration, 3 * (m + p - 1));
      EXPECT_DOUBLE_EQ(simulation.idle_fraction, (p - 1.0) / (m + p - 1));
    });
  }
}

TEST(Bubbles, interleaved) {
  for (const int v : {2, 3, 4}) {
    over_grid("interleaved", v, [v](int p, int m, const RowSimulation& simulation) {
      const int waiting = (v - 1) * std::max(0, p - m);  // for a microbatch to come round
      EXPECT_EQ(simulation.duration, 3 * (v * m + p - 1 + waiting));
      EXPECT_DOUBLE_EQ(simulation.idle_fraction, (p - 1.0 + waiting) / (v * m + p - 1 + waiting));
    });
  }
}

TEST(Bubbles, zb_h1) {
  over_grid("zb-h1", 1, [](int p, int m, const RowSimulation& simulation) {
    const int idle = p - 1 + std::max(0, p - m);
    EXPECT_EQ(simulation.duration, 3 * m + idle);
    EXPECT_DOUBLE_EQ(simulation.idle_fraction, static_cast<double>(idle) / (3 * m + idle));
  });
}

TEST(Bubbles, zb_v_is_as_short_as_any_enumerated_or_possible_one) {
  over_grid("zb-v", 2, [](int p, int m, const RowSimulation& simulation) {
    int64_t enumerated = greedy_v(p, m);
    if (m >= 2 * p - 1) enumerated = std::min(enumerated, published_zb_v(p, m));
    // Between ranks and 2 * ranks - 1 microbatches greedy schedules lag; there nothing can be shorter than
    // this.
    const bool lag = m > p && m < 2 * p - 1;
    EXPECT_LE(simulation.duration, enumerated);
    EXPECT_EQ(simulation.duration, lag ? least_v(p, m) : enumerated);
    EXPECT_EQ(simulation.duration, std::max({6 * m + p - 1, 4 * m + 3 * p - 1, 2 * m + 4 * p - 1}));
    EXPECT_DOUBLE_EQ(simulation.idle_fraction, idle_of(simulation.duration, 6 * m));
  });
}

TEST(Bubbles, dualpipe_v_is_half_of_dualpipe) {
  over_grid("dualpipe-v", 2, [](int p, int m, const RowSimulation& simulation) {
    EXPECT_EQ(simulation.duration, published_dualpipe(p, m));
    EXPECT_DOUBLE_EQ(simulation.idle_fraction, idle_of(simulation.duration, 6 * m));
    if (m < 2 * p) return;
    // As published: (devices / 2 - 1) * (F&B + B - 3 W), where F&B is 3 units if overlap itself saves
    // nothing.
    EXPECT_EQ(simulation.duration, 6 * m + (p - 1) * (3 + 2 - 3));
  });
}

// -- what holds for all ------------------------------------------------------------------------------------

struct Shape {
  const char* name;
  int stages_per_rank;
};
const std::vector<Shape> kAll = {{"gpipe", 1}, {"1f1b", 1}, {"interleaved", 2}, {"interleaved", 3},
                                 {"zb-h1", 1}, {"zb-v", 2}, {"dualpipe-v", 2}};

template <class Visit>
void over_all(Visit visit) {
  for (const Shape& shape : kAll) {
    const ScheduleCase schedule(shape.name);
    for (const int ranks : {1, 2, 3, 4, 7}) {
      for (const int microbatches : microbatches_for(ranks)) {
        SCOPED_TRACE(testing::Message() << shape.name << ' ' << ranks << ' ' << microbatches);
        visit(schedule.rows(ranks, ranks * shape.stages_per_rank, microbatches));
      }
    }
  }
}

// So that a gradient's sum over microbatches has one order, whatever the schedule.
TEST(Schedules, weight_gradients_of_a_stage_are_in_the_order_of_microbatches) {
  over_all([](const Rows& rows) {
    std::vector<int> next(static_cast<size_t>(rows.stages), 0);
    for (const auto& rank : rows.of_rank) {
      for (const Row& row : rank) {
        if (row.kind == RowKind::weight_grad || row.kind == RowKind::backward) {
          ASSERT_EQ(row.microbatch, next[static_cast<size_t>(row.stage)]++);
        }
      }
    }
  });
}

TEST(Schedules, one_linear_order_respects_ranks_needs_and_pairs) {
  over_all([](const Rows& rows) {
    const RowGivers givers(rows);
    std::vector<char> given(givers.size(), 0);
    std::vector<int> next(static_cast<size_t>(rows.ranks), 0);
    const std::vector<RowRef> order = linear_order(rows);
    size_t count = 0;
    for (const auto& rank : rows.of_rank) count += rank.size();
    ASSERT_EQ(order.size(), count);
    for (size_t i = 0; i < order.size(); ++i) {
      const auto& rank = rows.of_rank[static_cast<size_t>(order[i].rank)];
      const Row& row = rank[static_cast<size_t>(order[i].row)];
      ASSERT_EQ(order[i].row, next[static_cast<size_t>(order[i].rank)]++);
      for (const RowResult& need : needed_by(row, rows.stages)) ASSERT_TRUE(given[givers.index(need)]);
      for (const RowResult& result : given_by(row)) given[givers.index(result)] = 1;
      const bool paired = order[i].row > 0 && row.overlap > 0 &&
                          rank[static_cast<size_t>(order[i].row) - 1].overlap == row.overlap;
      ASSERT_TRUE(!paired || (order[i - 1] == RowRef{order[i].rank, order[i].row - 1}));
    }
  });
}

TEST(Schedules, are_read_back_from_their_text) {
  over_all([](const Rows& rows) {
    const auto again = parse_rows(Json(text_of(rows)), rows.microbatches, "");
    ASSERT_TRUE(again.ok()) << again.error().text();
    EXPECT_EQ(text_of(*again), text_of(rows));
    EXPECT_EQ(again->owner, rows.owner);
  });
}

}  // namespace
}  // namespace tenon::test
