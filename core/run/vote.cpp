#include "run/vote.h"

#include <fmt/format.h>

namespace tenon {

Result<std::unique_ptr<Vote>> Vote::open(RankDevice& device) {
  TENON_TRY(auto sum, WordSum::open(device, 1));
  return std::unique_ptr<Vote>(new Vote(std::move(sum)));
}

Result<bool> Vote::any(bool mine, int64_t step) {
  int64_t& word = sum_->words()[0];
  word = mine ? 1 : 0;
  TENON_CHECK(sum_->add_up(fmt::format("agreement at step {}", step)));
  return word > 0;
}

}  // namespace tenon
