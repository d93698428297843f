// Instructions, and rows of a schedule, as spans of a picture or a trace, simulated or measured. Pure.
#pragma once

#include "plan/program/program.h"
#include "plan/rows/times.h"
#include "plan/show/draw.h"

namespace tenon {

// All but the times. Details: "instruction" (its number in the rank's program), "op", "bytes", and where
// there are such "tensor" (what it writes), "row" ("F0.3": phase, stage, microbatch) and "layer".
Span span_of(const Program& program, InstrId id, int rank);

// A schedule as a picture: one lane a rank, later stages of a rank in darker shades.
std::vector<Span> spans_of(const Rows& rows, const RowSimulation& simulation);

// "forward", "input gradient", ...: the category of a picture.
const char* category_of(Phase phase);

// Read and written, each operand once; a transfer: what its rank's largest operand holds.
uint64_t bytes_of(const Instr& instr);

}  // namespace tenon
