// What goes into a rank's memory before a step and comes out of it behind one.
#pragma once

#include "rank_memory.h"

namespace tenon::mutants {

// The inputs of a rank for a step over `batch` (numbers of samples; -1: padding). Which samples and tokens
// are a rank's is what run/sampler.h makes of the program.
void fill_inputs(const Program& program, int64_t rank, const std::vector<int64_t>& batch, int64_t step,
                 RankMemory& memory);
// The inputs of a rank for the logits of a prompt as long as the context, of no sample.
void fill_prompt(const Program& program, int64_t rank, const std::vector<int32_t>& prompt, int64_t step,
                 RankMemory& memory);
// What a rank has of the logits: those of each position, one behind the other.
std::vector<double> read_logits(const Program& program, RankMemory& memory);
double read_output(const Program& program, const std::string& name, RankMemory& memory);

}  // namespace tenon::mutants
