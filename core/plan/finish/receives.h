// Where receives are posted.
#pragma once

#include "plan/program/program.h"

namespace tenon {

// Moves each receive of an emitted program, where it stands as early as its value is sent, behind the first
// use of the value that is as many receives before it on its lane as the window holds: its slot is free then.
// Two bounds keep ranks from waiting for each other: it is posted before the first use of its own value, or
// of a later one of the lane; and before the place where the sender sends that many values later, for there
// the sender's window waits for it. So in the order of emission every wait is for what is complete.
void place_receives(Program& program);

}  // namespace tenon
