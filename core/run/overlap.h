// What a rank's transfers cost, and how much of it is hidden behind work.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tenon {

// What this rank's transfers cost. They are waited for at once in one step near the start of a session; in
// the others, as planned, beside the work.
struct Overlap {
  double alone_seconds = 0;    // of a step's transfers, each waited for at once; 0: not measured yet
  double exposed_seconds = 0;  // of a step on average, as planned
  // Share of the transfers' time that is hidden behind work.
  double hidden() const { return alone_seconds > 0 ? std::max(0.0, 1 - exposed_seconds / alone_seconds) : 0; }
};

class OverlapMeter {
 public:
  explicit OverlapMeter(int64_t world) : world_(world) {}

  // Before a step: whether its transfers are to be waited for at once. The first step is not typical: memory
  // is touched for the first time.
  bool at_once() const { return steps_ + 1 == kAlone && world_ > 1; }
  // Behind it: the seconds in which it did nothing but wait for transfers, or start them.
  void add(double transfer_seconds) {
    if (at_once()) alone_ = transfer_seconds;
    if (++steps_ > kAlone) exposed_ += transfer_seconds;
  }
  Overlap overlap() const {
    if (steps_ <= kAlone) return {};
    return {alone_, exposed_ / static_cast<double>(steps_ - kAlone)};
  }

 private:
  static constexpr int64_t kAlone = 2;  // the step that shows what transfers cost on their own
  const int64_t world_;
  int64_t steps_ = 0;  // of this session
  double alone_ = 0, exposed_ = 0;
};

}  // namespace tenon
