// A small data set for the recipes of this suite: sixteen tokens, a third of the samples partly padded, some
// wholly. As a plugin's table for a Session, and as a function for the interpreter.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/data.h"

namespace tenon::mutants {

constexpr int64_t kNumSamples = 32, kVocabulary = 16, kContext = 8;

struct Sample {
  std::vector<int32_t> tokens, targets;  // kContext of each; a target of -1 is padding
};
// `index` in [0, kNumSamples).
const Sample& sample(int64_t index);

const tenon_data* sample_table();

}  // namespace tenon::mutants
