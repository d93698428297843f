// Judges mutants in processes of their own: what brings one down is a finding, and the next one goes on.
#pragma once

#include <vector>

#include "judge.h"

namespace tenon::mutants {

// By mutant. `processes` at once.
std::vector<Judgement> judge_all(Subject& subject, const std::vector<Mutant>& mutants, int processes,
                                 uint64_t seed);

}  // namespace tenon::mutants
