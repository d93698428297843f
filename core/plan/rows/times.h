// When rows run: simulated times, the bubble, memory in flight, and one order of all rows of all ranks.
#pragma once

#include "plan/rows/replay.h"

namespace tenon {

// A step on its own, with transfers that take no time. Rows that run interleaved start together, when all
// that they need is there, take the sum of their times, and end together.
struct RowSimulation {
  std::vector<std::vector<RowTime>> of_rank;
  int64_t duration = 0;      // of the step, from 0
  double idle_fraction = 0;  // of all ranks' time: the bubble
  std::vector<int>
      activations;  // per rank: the most pairs (stage, microbatch) between forward and weight gradient
};

// Needs check_rows(). Costs are above 0.
RowSimulation simulate(const Rows& rows, const RowCost& cost);

// All rows of all ranks in one order that respects what rows need and each rank's own order, by simulated
// start in units of time, then by rank. Interleaved rows stay neighbours. A program that issues work and both
// ends of every transfer in this order cannot deadlock. Needs check_rows().
std::vector<RowRef> linear_order(const Rows& rows);

}  // namespace tenon
