// What each class of ranks does while the rows of a step run: its rows, and between them what others send to
// it. It follows from the graph and the schedule alone, so that a class's program is emitted without the
// others'.
#pragma once

#include <functional>
#include <span>

#include "plan/emit/stages.h"

namespace tenon {

// Goes through the ops of neighbouring rows of one rank that run interleaved, or of one row, in the order in
// which they are emitted. Rows take turns: each goes on until it has begun an op that exchanges, which it
// ends in its next turn, so that the work of the others can hide what is exchanged.
using TurnVisit = std::function<Status(size_t row, OpId op)>;
Status take_turns(const StagePlan& stages, std::span<const Row> rows, const TurnVisit& begin,
                  const TurnVisit& end);

// Rows [first, end) of the class run; or, `value` is one: it comes from another class.
struct Visit {
  size_t first = 0, end = 0;
  ValueId value = kNone;
  int microbatch = 0, from = 0;
};

// The other classes that read what this one makes, in the order in which it is sent to them.
std::vector<int> readers_of(const StagePlan& stages, const Rows& rows, ValueId value, int maker);

// By class. Both ends of what is sent are in one order over all classes, that of linear_order(), so that none
// waits for ever.
std::vector<std::vector<Visit>> plan_visits(const Graph& graph, const StagePlan& stages, const Rows& rows);

}  // namespace tenon
