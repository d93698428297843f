// Cases beyond the grid, drawn from a kept seed: any sizes that divide, odd ones among them, any order of
// axes.
#pragma once

#include <array>

#include "cases.h"

namespace tenon::test {

// The number-th case: at most 20 ranks, each factor anything that the strategies accept.
Case drawn_case(uint64_t number);

// A training in exact mode whose bits are those of any member: `ranks` data-parallel ranks of kDataRanks and
// a stage of ZeRO; all else is the combination's.
inline constexpr std::array<int, 4> kDataRanks{1, 2, 4, 8};
struct ExactCombination {
  Case rest;  // its `data` and `zero.stage` are a member's matter
  int shards = 8;
  std::array<int, 4> outer{1, 1, 1, 1};  // of each of kDataRanks

  Case member(size_t data, int stage) const;
  std::string name() const;
};
ExactCombination drawn_exact(uint64_t number);

}  // namespace tenon::test
