// Wait edges between lanes.
#pragma once

#include "plan/program/program.h"

namespace tenon {

// Adds the wait edges that the operands' bytes and the lanes' window demand, and no other. Time: as the list
// is long, times what its windows hold.
void schedule_waits(Program& program);

}  // namespace tenon
