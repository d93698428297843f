// How long a run still takes, from what it took so far. Pure.
#pragma once

#include <cstdint>

namespace tenon::cli {

struct Mean {
  double sum = 0;
  int64_t count = 0;
  void add(double value) { sum += value, ++count; }
  double value() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
};

// Seconds that each thing took. No evaluation or save measured: its mean has no values.
struct Pace {
  double step = 0;
  Mean eval, save;
};

// How many of each are still to come.
struct Remaining {
  int64_t steps = 0, evals = 0, saves = 0;
};

// At the end of step `done` of `steps`, before that step's own evaluation and save. The intervals are the
// recipe's: 0 is never.
Remaining remaining_after(int64_t done, int64_t steps, int64_t eval_every, int64_t save_every);

struct Eta {
  double seconds = 0;
  bool at_least = false;  // something of unknown length is to come
};
Eta eta_of(const Remaining& remaining, const Pace& pace);

}  // namespace tenon::cli
