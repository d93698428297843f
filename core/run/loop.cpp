#include "run/loop.h"

#include "base/clock.h"
#include "run/due.h"

namespace tenon {
namespace {

class Loop {
 public:
  Loop(Session& session, const LoopOptions& options)
      : session_(session), recipe_(session.recipe()), options_(options) {}

  Result<LoopEnd> run() {
    if (options_.resume) {
      TENON_TRY(const std::string from, session_.resume(storage_, options_.checkpoints));
      saved_ = session_.steps_done();
      if (options_.observer != nullptr) TENON_CHECK(options_.observer->on_resume(session_, from));
    }
    if (options_.observer != nullptr) TENON_CHECK(options_.observer->on_start(session_));
    while (session_.steps_done() < recipe_.steps) {
      TENON_TRY(const bool stop, session_.any(options_.stop != nullptr && options_.stop->load()));
      if (stop) {
        TENON_CHECK(save());
        return end(LoopEnd::stopped);
      }
      TENON_TRY(const StepResult step, session_.step());
      if (options_.observer != nullptr) TENON_CHECK(options_.observer->on_step(session_, step));
      if (step.step == session_.trace_range().last) TENON_CHECK(trace());
      if (due(recipe_.eval_every, step.step, recipe_.steps)) TENON_CHECK(evaluate());
      if (due(recipe_.save_every, step.step, recipe_.steps)) TENON_CHECK(save());
    }
    return end(LoopEnd::finished);
  }

 private:
  Result<LoopEnd> end(LoopEnd how) {
    if (session_.trace_range().last > session_.steps_done()) TENON_CHECK(trace());
    if (options_.observer != nullptr) TENON_CHECK(options_.observer->on_end(session_));
    return how;
  }

  Status evaluate() {
    const double start = seconds_now();
    TENON_TRY(const EvalResult eval, session_.evaluate());
    if (options_.observer != nullptr)
      TENON_CHECK(options_.observer->on_eval(session_, eval, seconds_now() - start));
    return {};
  }

  Status trace() {
    TENON_TRY(const std::vector<Span> spans, session_.gather_trace());
    if (options_.observer != nullptr) TENON_CHECK(options_.observer->on_trace(session_, spans));
    return {};
  }

  Status save() {
    if (saved_ == session_.steps_done()) return {};
    const double start = seconds_now();
    TENON_TRY(const std::string path, session_.save(storage_, options_.checkpoints, options_.run_id));
    saved_ = session_.steps_done();
    if (options_.observer != nullptr)
      TENON_CHECK(options_.observer->on_save(session_, path, seconds_now() - start));
    return {};
  }

  Session& session_;
  const Recipe& recipe_;
  const LoopOptions& options_;
  checkpoint::PosixStorage storage_;
  int64_t saved_ = -1;
};

}  // namespace

Result<LoopEnd> run_loop(Session& session, const LoopOptions& options) {
  return Loop(session, options).run();
}

}  // namespace tenon
