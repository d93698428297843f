// The training loop of the command: steps, evaluations, saves, and stopping together.
#pragma once

#include <atomic>
#include <string>

#include "run/checkpoints.h"
#include "run/trace.h"

namespace tenon {

// Told about everything, on the rank's thread. Only rank 0 has one.
class LoopObserver {
 public:
  virtual ~LoopObserver() = default;
  // Before on_start of a resumed run, which is the run's start number `attempt`.
  virtual Status on_resume(const Session& session, const Loaded& from, int64_t attempt) = 0;
  virtual Status on_start(const Session& session) = 0;
  virtual Status on_step(const Session& session, const StepResult& step) = 0;
  virtual Status on_eval(const Session& session, const EvalResult& eval, double seconds) = 0;
  virtual Status on_save(const Session& session, const std::string& path, double seconds) = 0;
  // Behind the last traced step, or at the end of a run that stopped before: of all ranks, in nanoseconds.
  virtual Status on_trace(const Session& session, const std::vector<Span>& spans) = 0;
  // Finished, or stopped and saved.
  virtual Status on_end(const Session& session) = 0;
};

struct LoopOptions {
  std::string checkpoints;  // folder; made when missing
  std::string run_id;
  bool resume = false;                      // load the newest checkpoint first
  TraceRange trace;                         // steps whose instructions are timed
  const std::atomic<bool>* stop = nullptr;  // set: finish the step, save, end
  LoopObserver* observer = nullptr;         // NULL on other ranks
};

enum class LoopEnd : uint8_t { finished, stopped };

// D004: the recipe evaluates, and nothing is held out for that.
Status check_evaluation(const Recipe& recipe);

// Collective. Evaluates and saves every so many steps and behind the last one.
Result<LoopEnd> run_loop(Session& session, const LoopOptions& options);

}  // namespace tenon
