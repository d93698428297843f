// One evaluation of a recipe, bounded in memory and instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tenon/frontend.h"

namespace tenon::lua {

constexpr int kHookInterval = 1000;  // instructions are counted in these steps

struct Limits {
  size_t memory = size_t{64} << 20;  // bytes of the Lua state
  int64_t instructions = 50'000'000;
};

struct Spent {
  size_t peak_memory = 0;
  int64_t instructions = 0;
};

// The document of tenon/frontend.h, for a recipe and for a mistake in one. Throws sdk::Failure when there is
// no memory for a state at all. `spent`, if given, is what the evaluation took.
std::string evaluate(const tenon_frontend_config& config, const Limits& limits = {}, Spent* spent = nullptr);

}  // namespace tenon::lua
