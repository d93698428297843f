// Sums of 64-bit integers over all ranks, by the run's own communication: what ranks tell one another between
// two steps, as often as they like.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "run/device.h"

namespace tenon {

class WordSum {
 public:
  // Of `words` words. `device` is borrowed. Collective.
  static Result<std::unique_ptr<WordSum>> open(RankDevice& device, size_t words);

  // This rank's summands going in, the sums coming out; sums wrap around.
  std::span<int64_t> words() { return words_; }
  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(words_)); }
  // `what` is for the error's place. Collective.
  Status add_up(const std::string& what);
  // Error E030, on all ranks, unless all say the same. Takes two words. Collective.
  Status agree(const std::string& what, const std::string& mine);

 private:
  WordSum(RankDevice& device, size_t words) : device_(device), words_(words) {}

  RankDevice& device_;
  std::vector<int64_t> words_;
  Handle<tenon_comm_plan> sum_;  // of the words; NULL when the world is 1
};

}  // namespace tenon
