// What really ran, and when: times of instructions, taken by the executor into memory that was there before,
// and gathered from all ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "plan/compile/compile.h"
#include "plan/show/spans.h"
#include "run/trace_range.h"

namespace tenon {

class Peers;

// Nanoseconds of the steady clock, which all processes of a host share.
inline int64_t trace_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct InstrTimes {
  int64_t ready = 0;   // the rank came to it, and began to wait for what it needs
  int64_t start = 0;   // all that was there
  int64_t issued = 0;  // its kernels had run, or its transfer was started
  int64_t done = 0;    // a transfer: somebody who waited for it, or for one behind it, saw it complete
};

// The times of one rank's program in a range of steps.
class StepTrace {
 public:
  StepTrace(TraceRange range, size_t num_instrs)
      : range_(range),
        num_instrs_(num_instrs),
        times_(range.any() ? static_cast<size_t>(range.last - range.first + 1) * num_instrs : 0) {}

  const TraceRange& range() const { return range_; }
  size_t num_instrs() const { return num_instrs_; }
  // An entry for each instruction; NULL: the step is not traced.
  InstrTimes* of(int64_t step) {
    if (step < range_.first || step > range_.last) return nullptr;
    return times_.data() + static_cast<size_t>(step - range_.first) * num_instrs_;
  }

  // The step in which each transfer was waited for where it started; 0: none.
  int64_t at_once_step() const { return at_once_step_; }
  void set_at_once_step(int64_t step) { at_once_step_ = step; }

 private:
  TraceRange range_;
  size_t num_instrs_;
  int64_t at_once_step_ = 0;
  std::vector<InstrTimes> times_;
};

// A step of a rank as spans, in nanoseconds. Each instruction has one, with the detail "instruction"; those
// of a lane follow one another: a transfer is drawn from when the lane came to it, until it was seen to be
// complete. Besides, without that detail: "wait" and "start" (of a transfer) on the compute lane, and the
// whole step on a lane of its own. `at_once`: each transfer was waited for where it started.
std::vector<Span> spans_of(const Program& program, const InstrTimes* times, int rank, int64_t step,
                           bool at_once);

// The traced steps of those done so far as spans of nanoseconds since the first: on rank 0 those of all
// ranks, on the others none. Collective; once in a run. `train`: of all ranks; NULL but on rank 0.
Result<std::vector<Span>> gather_spans(StepTrace& trace, const Compiled* train, const Peers& peers,
                                       int64_t steps_done);

}  // namespace tenon
