// Layouts of programs that may be changed: the functions of plan/program/program.h take what holds of all
// that the compiler makes for granted, so it is asked for first.
#pragma once

#include "rank_memory.h"

namespace tenon::mutants {

// Fault unless the number is of a layout of which parts and members can be told.
const FlatLayout& layout_of(const Program& program, int64_t index);

}  // namespace tenon::mutants
