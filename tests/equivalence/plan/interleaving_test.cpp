// Rows that run interleaved: their programs take turns at transfers, hide more of them than the same rows one
// behind the other, and compute the same amount of work.
#include "plan/show/simulate.h"
#include "schedule_case.hpp"
#include "strategy_programs.hpp"

namespace tenon::test {
namespace {

// A pipeline in a V whose stages communicate among themselves too, at every norm; with the rows of the
// schedule's plugin, interleaved or not.
Json v_recipe(bool interleaved) {
  Json recipe = recipe_of({"v", "gpt2", {{"pp", 2}, {"tp", 2}}, "pipeline2 sequence", "dualpipe-v", 8, 4},
                          "none", false);
  Rows rows = ScheduleCase("dualpipe-v").rows(2, 4, 8);
  for (auto& rank : rows.of_rank) {
    for (Row& row : rank) row.overlap = interleaved ? row.overlap : 0;
  }
  recipe["schedule"] = {{"rows", text_of(rows)}};
  return recipe;
}

// Share of the transfers' time that the compute lanes do not wait for.
double hidden(const std::vector<Program>& programs) {
  Machine machine;
  machine.launch = 0;
  machine.link_latency = 1e-5;  // transfers about as long as the kernels between them
  return hidden_fraction(simulate(programs, machine), programs, machine);
}

TEST(interleaved_rows, hide_transfers_behind_each_others_work) {
  const std::vector<Program> apart = compile_document(v_recipe(false), 4).programs;
  const std::vector<Program> together = compile_document(v_recipe(true), 4).programs;
  ASSERT_EQ(apart.size(), together.size());
  for (size_t i = 0; i < apart.size(); ++i) {
    EXPECT_EQ(apart[i].instrs.size(), together[i].instrs.size());
    EXPECT_DOUBLE_EQ(apart[i].flops, together[i].flops);
  }
  const double one_by_one = hidden(apart), interleaved = hidden(together);
  printf("%.1f%% of transfers hidden one behind the other, %.1f%% interleaved\n", 100 * one_by_one,
         100 * interleaved);
  EXPECT_GT(interleaved, one_by_one + 0.1);
}

}  // namespace
}  // namespace tenon::test
