#include "run/trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "run/peers.h"

namespace tenon {
namespace {

class StepSpans {
 public:
  StepSpans(const Program& program, const InstrTimes* times, int rank, int64_t step)
      : program_(program), times_(times), rank_(rank), step_(step), lane_end_(program.lanes.size()) {}

  std::vector<Span> of(bool at_once) {
    add_step(at_once);
    for (InstrId id = 0; id < program_.instrs.size(); ++id) add_instr(id, at_once);
    const int64_t issued = times_[program_.instrs.size() - 1].issued, end = end_of_step();
    if (!at_once && end > issued) add_beside("wait", "wait", issued, end);
    return std::move(out_);
  }

 private:
  int64_t end_of_step() const {
    const auto last = std::max_element(times_, times_ + program_.instrs.size(),
                                       [](const auto& a, const auto& b) { return a.done < b.done; });
    return last->done;
  }

  void add(Span span, int64_t start, int64_t end) {
    span.start = static_cast<double>(start);
    span.end = static_cast<double>(end);
    span.details.emplace_back("step", step_);
    out_.push_back(std::move(span));
  }

  void add_beside(const std::string& label, const char* category, int64_t start, int64_t end) {
    Span span;
    span.rank = rank_;
    span.lane = program_.lanes[0];
    span.label = label;
    span.category = category;
    add(std::move(span), start, end);
  }

  void add_step(bool at_once) {
    Span span;
    span.rank = rank_;
    span.lane = "step";
    span.label = fmt::format("step {}{}", step_, at_once ? ", transfers waited for at once" : "");
    span.category = "step";
    add(std::move(span), times_[0].ready, end_of_step());
  }

  bool waits(const Instr& instr) const {
    return std::ranges::any_of(instr.waits, [&](InstrId w) { return program_.instrs[w].lane != 0; });
  }

  void add_instr(InstrId id, bool at_once) {
    const Instr& instr = program_.instrs[id];
    const InstrTimes& at = times_[id];
    Span span = span_of(program_, id, rank_);
    constexpr int64_t kWait = 1000;  // less is looking, not waiting
    if (waits(instr) && at.start - at.ready > kWait) add_beside("wait", "wait", at.ready, at.start);
    if (instr.lane == 0) return add(std::move(span), at.start, at.issued);
    add_beside("start " + span.label, "start", at.start, at.issued);
    if (at_once) add_beside("wait", "wait", at.issued, at.done);
    int64_t& free = lane_end_[instr.lane];  // what is in flight together is done one after the other
    add(std::move(span), std::max(at.start, free), at.done);
    free = at.done;
  }

  const Program& program_;
  const InstrTimes* times_;
  const int rank_;
  const int64_t step_;
  std::vector<int64_t> lane_end_;
  std::vector<Span> out_;
};

}  // namespace

std::vector<Span> spans_of(const Program& program, const InstrTimes* times, int rank, int64_t step,
                           bool at_once) {
  return StepSpans(program, times, rank, step).of(at_once);
}

// Rank 0 knows all programs: only times travel.
Result<std::vector<Span>> gather_spans(StepTrace& trace, const Compiled* train, const Peers& peers,
                                       int64_t steps_done) {
  const RankId id = peers.id();
  std::vector<Span> out;
  for (int64_t step = trace.range().first; step <= std::min(trace.range().last, steps_done); ++step) {
    const auto key = [step](int64_t rank) { return fmt::format("trace/{}/{}", step, rank); };
    const InstrTimes* mine = trace.of(step);
    if (id.rank != 0) {
      TENON_CHECK(peers.rendezvous()->set(
          key(id.rank), {reinterpret_cast<const char*>(mine), trace.num_instrs() * sizeof(InstrTimes)}));
      continue;
    }
    for (int64_t rank = 0; rank < id.world; ++rank) {
      const Program& program = train->of(rank);
      std::vector<InstrTimes> times(mine, mine + (rank == 0 ? program.instrs.size() : 0));
      if (rank != 0) {
        TENON_TRY(const std::string bytes, peers.rendezvous()->get(key(rank), peers.timeout_ns()));
        times.resize(bytes.size() / sizeof(InstrTimes));
        std::copy_n(bytes.data(), times.size() * sizeof(InstrTimes), reinterpret_cast<char*>(times.data()));
      }
      std::ranges::move(
          spans_of(program, times.data(), static_cast<int>(rank), step, step == trace.at_once_step()),
          std::back_inserter(out));
    }
  }
  const auto first = std::ranges::min_element(out, {}, &Span::start);
  const double origin = out.empty() ? 0 : first->start;
  for (Span& span : out) span.start -= origin, span.end -= origin;
  return out;
}

}  // namespace tenon
