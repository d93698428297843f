// The rows of a table, or of a vocabulary, that this kernel has.
#pragma once

#include "op.h"

namespace tenon::kernels::cpu {

struct Shard {
  int64_t start, rows;
  static Shard whole(const Call& call) { return {0, call.size("v")}; }
  static Shard of(const Call& call) { return {call.problem.integer("start"), call.size("v")}; }
  // What an index of the whole vocabulary means here; -1: not of this shard.
  int64_t row(int32_t index) const {
    return index >= 0 && index >= start && index < start + rows ? index - start : -1;
  }
};

}  // namespace tenon::kernels::cpu
