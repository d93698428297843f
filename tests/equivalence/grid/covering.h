// Covering arrays: few cases in which every combination of values of any three factors occurs (Cohen, Dalal,
// Fredman, Patton, "The AETG System", 1997), with constraints. Deterministic: a function of its arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace tenon::test {

constexpr int kOpen = -1;  // a factor without a value yet

// A value of each factor, or kOpen.
using Choice = std::vector<int>;

// May a choice, whose factors may be open, still become a case? Never true again once false: setting more
// factors does not repair a choice.
using Allowed = std::function<bool(const Choice&)>;

struct CoveringArray {
  std::vector<Choice> cases;
  int64_t triples = 0;     // combinations that cases cover
  int64_t impossible = 0;  // combinations that no allowed case has
};

// `sizes`: values of each factor, three factors or more.
CoveringArray cover_triples(const std::vector<int>& sizes, const Allowed& allowed, uint64_t seed);

}  // namespace tenon::test
