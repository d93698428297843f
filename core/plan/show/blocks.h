// A simulated step as spans: every instruction for a trace viewer, or blocks of work for a picture. Pure.
#pragma once

#include "plan/show/draw.h"
#include "plan/show/simulate.h"

namespace tenon {

// Every instruction; seconds. A span's rank is the place on the pipeline, of which one rank stands for all.
std::vector<Span> instrs_of(const std::vector<Program>& programs, const Simulation& simulation);

// The same as somebody draws it by hand. Work on one stage and microbatch is a block, "F0.3" as in a
// schedule's row; in a program without a pipeline "F3", and with one microbatch only, "layer 3". Gradients
// that take turns are one backward, as they are where a layer's are computed together. Transfers along the
// pipeline share a lane. Microbatches have numbers where there are several. Neighbours of a block are spans
// alike, for svg_of() to join.
std::vector<Span> blocks_of(const std::vector<Program>& programs, const Simulation& simulation);

}  // namespace tenon
