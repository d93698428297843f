// Wait edges between lanes.
#pragma once

#include "plan/program/program.h"

namespace tenon {

// Adds the wait edges that the operands' bytes demand, and no other.
void schedule_waits(Program& program);

}  // namespace tenon
