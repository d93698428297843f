#include "cli/eta.h"

#include "run/due.h"

namespace tenon::cli {

Remaining remaining_after(int64_t done, int64_t steps, int64_t eval_every, int64_t save_every) {
  return {steps - done, times_due(eval_every, done, steps), times_due(save_every, done, steps)};
}

Eta eta_of(const Remaining& remaining, const Pace& pace) {
  Eta out;
  out.seconds = pace.step * static_cast<double>(remaining.steps) +
                pace.eval.value() * static_cast<double>(remaining.evals) +
                pace.save.value() * static_cast<double>(remaining.saves);
  out.at_least =
      (remaining.evals > 0 && pace.eval.count == 0) || (remaining.saves > 0 && pace.save.count == 0);
  return out;
}

}  // namespace tenon::cli
