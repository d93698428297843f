#include "run/loop.h"

#include "base/clock.h"
#include "run/due.h"
#include "run/sampler.h"
#include "run/vote.h"

namespace tenon {
namespace {

class Loop {
 public:
  Loop(Session& session, const LoopOptions& options)
      : session_(session),
        recipe_(session.recipe()),
        options_(options),
        checkpoints_(session),
        trace_(options.trace, session.train_program().instrs.size()) {}

  Result<LoopEnd> run() {
    TENON_CHECK(check_evaluation(recipe_));
    TENON_TRY(vote_, Vote::open(session_.device()));
    if (options_.resume)
      TENON_CHECK(load());
    else
      TENON_CHECK(checkpoints_.check_owner(storage_, options_.checkpoints, options_.run_id));
    if (options_.observer != nullptr) TENON_CHECK(options_.observer->on_start(session_));
    while (session_.steps_done() < recipe_.steps) {
      TENON_TRY(const bool stop,
                vote_->any(options_.stop != nullptr && options_.stop->load(), session_.steps_done()));
      if (stop) {
        TENON_CHECK(save());
        return end(LoopEnd::stopped);
      }
      TENON_TRY(const StepResult step, session_.step(trace_.of(session_.steps_done() + 1)));
      if (step.at_once) trace_.set_at_once_step(step.step);
      if (options_.observer != nullptr) TENON_CHECK(options_.observer->on_step(session_, step));
      if (step.step == trace_.range().last) TENON_CHECK(tell_trace());
      if (due(recipe_.eval_every, step.step, recipe_.steps)) TENON_CHECK(evaluate());
      if (due(recipe_.save_every, step.step, recipe_.steps)) TENON_CHECK(save());
    }
    return end(LoopEnd::finished);
  }

 private:
  Result<LoopEnd> end(LoopEnd how) {
    if (trace_.range().last > session_.steps_done()) TENON_CHECK(tell_trace());
    if (options_.observer != nullptr) TENON_CHECK(options_.observer->on_end(session_));
    return how;
  }

  // Of a run that ended before its first save there is nothing to load: it starts anew.
  Status load() {
    TENON_TRY(const bool any, checkpoints_.any(storage_, options_.checkpoints));
    Loaded from;
    if (any) {
      TENON_TRY(from, checkpoints_.load(storage_, options_.checkpoints));
      saved_ = session_.steps_done();
    }
    if (options_.observer == nullptr) return {};
    return options_.observer->on_resume(session_, from, checkpoints_.attempt());
  }

  Status evaluate() {
    const double start = seconds_now();
    TENON_TRY(const EvalResult eval, session_.evaluate());
    if (options_.observer != nullptr)
      TENON_CHECK(options_.observer->on_eval(session_, eval, seconds_now() - start));
    return {};
  }

  Status tell_trace() {
    std::shared_ptr<const Compiled> programs;
    if (session_.peers().id().rank == 0) {
      TENON_TRY(programs, session_.train_programs_of_all());
    }
    TENON_TRY(const std::vector<Span> spans,
              gather_spans(trace_, programs.get(), session_.peers(), session_.steps_done()));
    if (options_.observer != nullptr) TENON_CHECK(options_.observer->on_trace(session_, spans));
    return {};
  }

  Status save() {
    if (saved_ == session_.steps_done()) return {};
    const double start = seconds_now();
    TENON_TRY(const std::string path, checkpoints_.save(storage_, options_.checkpoints, options_.run_id));
    saved_ = session_.steps_done();
    if (options_.observer != nullptr)
      TENON_CHECK(options_.observer->on_save(session_, path, seconds_now() - start));
    return {};
  }

  Session& session_;
  const Recipe& recipe_;
  const LoopOptions& options_;
  checkpoint::PosixStorage storage_;
  Checkpoints checkpoints_;
  StepTrace trace_;
  std::unique_ptr<Vote> vote_;
  int64_t saved_ = -1;
};

}  // namespace

Status check_evaluation(const Recipe& recipe) {
  return recipe.eval_every > 0 && recipe.valid == 0 ? Status(nothing_held_out()) : Status();
}

Result<LoopEnd> run_loop(Session& session, const LoopOptions& options) {
  return Loop(session, options).run();
}

}  // namespace tenon
