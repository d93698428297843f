// A question to all ranks between two steps, answered by a small sum over the run's own communication.
#pragma once

#include <memory>

#include "run/word_sum.h"

namespace tenon {

class Vote {
 public:
  // `device` is borrowed. Collective.
  static Result<std::unique_ptr<Vote>> open(RankDevice& device);

  // True if any rank asked for it, on all ranks, so that all stop at the same step. `step` is for the error's
  // place. Collective.
  Result<bool> any(bool mine, int64_t step);

 private:
  explicit Vote(std::unique_ptr<WordSum> sum) : sum_(std::move(sum)) {}

  std::unique_ptr<WordSum> sum_;
};

}  // namespace tenon
