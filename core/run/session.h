// One rank's training run: programs, memory, data position, checkpoints. The loop around it belongs to
// the caller (the command, or a program that embeds Tenon).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "plan/compile/compile.h"
#include "run/checkpoint/load.h"
#include "run/checkpoint/save.h"
#include "run/device.h"
#include "run/executor.h"
#include "run/rendezvous/rendezvous.h"
#include "run/sampler.h"

namespace tenon {

// The programs of a run, for every rank.
struct Programs {
  std::optional<Compiled> train;  // of a run that trains
  Compiled eval, logits;

  // Those that fix which rank holds what.
  const Compiled& layout() const { return train ? *train : eval; }
};

struct SessionOptions {
  RankId id;
  run::Rendezvous* rendezvous = nullptr;  // may be NULL when world is 1; outlives the session
  std::string root;                       // relative data paths start here
  int threads = 1;                        // of this rank
  int64_t timeout_ns = 120'000'000'000;   // for every wait on peers
  bool training = true;                   // false: no train program (eval, sample)
  TraceRange trace;                       // steps whose instructions are timed; of a session that trains
  // What compile_programs() made of the recipe for this world; NULL: the session compiles. Ranks of one
  // process may share it.
  std::shared_ptr<const Programs> programs = nullptr;
};

struct StepResult {
  int64_t step = 0;      // steps done
  double loss = 0;       // nats per token, over the whole batch
  double grad_norm = 0;  // before clipping
  double lr = 0;
  int64_t tokens = 0;  // that counted in the loss
  double seconds = 0;
};

// What this rank's transfers cost. They are waited for at once in one step near the start of a session; in
// the others, as planned, beside the work.
struct Overlap {
  double alone_seconds = 0;    // of a step's transfers, each waited for at once; 0: not measured yet
  double exposed_seconds = 0;  // of a step on average, as planned
  // Share of the transfers' time that is hidden behind work.
  double hidden() const { return alone_seconds > 0 ? std::max(0.0, 1 - exposed_seconds / alone_seconds) : 0; }
};

struct EvalResult {
  double loss = 0;
  int64_t tokens = 0;
};

struct MemoryReport {
  uint64_t params = 0, state = 0, inputs = 0, arena = 0;  // planned bytes
  uint64_t kernels_private = 0;                           // declared by the kernels plugin
  uint64_t total() const { return params + state + inputs + arena + kernels_private; }
};

// Everything that compile() needs from a recipe's plugins; pure, needs no device. Options are borrowed
// from `plugins`.
Result<CompileOptions> compile_options(const Recipe& recipe, const PluginSet& plugins, const Mesh& mesh);

// Pure as compile(), and with its errors.
Result<std::shared_ptr<const Programs>> compile_programs(const Recipe& recipe, const PluginSet& plugins,
                                                         int64_t world, bool training);

// Error D003 unless every table that the programs look tokens up in has a row for each token below `limit`.
Status check_vocabulary(const Compiled& compiled, int64_t limit);

class Session {
 public:
  // Compiles, agrees on the program's hash with all ranks, allocates, prepares, initialises parameters.
  // Collective. `recipe` and `plugins` are borrowed.
  static Result<std::unique_ptr<Session>> open(const Recipe& recipe, const PluginSet& plugins,
                                               const SessionOptions& options);
  ~Session();

  // One optimizer step. Collective. Error N001 when the loss is not finite; the step then counts as not
  // done and parameters may hold NaN: load a checkpoint.
  Result<StepResult> step();
  // Mean loss over eval.batches batches of the held-out tail, or over all of it. Collective.
  Result<EvalResult> evaluate();
  // True if any rank asked: a small sum over all ranks, so that all stop at the same step. Collective.
  Result<bool> any(bool mine);

  // Steps asked to be traced; what their instructions did.
  TraceRange trace_range() const { return options_.trace; }
  StepTrace& trace() { return *trace_; }
  // The traced steps done so far as spans of nanoseconds since the first: on rank 0 those of all ranks, on
  // the others none. Collective; once in a session.
  Result<std::vector<Span>> gather_trace();

  // Writes checkpoint step-<N> into `directory`. Collective. Returns its path.
  Result<std::string> save(checkpoint::Storage& storage, const std::string& directory,
                           const std::string& run_id);
  // Loads the newest sound checkpoint of `directory`. Collective. Error C005 for another model.
  Result<std::string> resume(checkpoint::Storage& storage, const std::string& directory);

  // What resume() found damaged, newest first: it loaded the next older one.
  const std::vector<checkpoint::Rejected>& passed_over() const { return passed_over_; }

  // Logits of the last of `tokens` (at most `context`).
  Result<std::vector<double>> logits(const std::vector<int32_t>& tokens);

  int64_t steps_done() const { return steps_done_; }
  int64_t attempt() const { return attempt_; }
  const Recipe& recipe() const { return recipe_; }
  const Program& train_program() const { return mine(*programs_->train); }
  const VerifyReport& report() const { return programs_->train->report; }
  MemoryReport memory() const;
  Overlap overlap() const;
  // Of the whole model, wherever its stages are.
  int64_t num_parameters() const;
  int64_t num_tensors() const;
  // Sessions that share this process's memory: the world with virtual ranks, else 1.
  int64_t ranks_in_process() const;
  Feeder& feeder() { return *feeder_; }
  // A parameter's or state tensor's description; NULL when this rank holds none of that name. What it holds
  // of it, and where that is.
  const TensorInfo* find(const std::string& name) const;
  const std::vector<TensorInfo>& params() const { return layout().params; }
  const std::vector<TensorInfo>& states() const { return layout().states; }
  Held held(const TensorInfo& tensor) const { return held_by(layout(), tensor, options_.id.rank); }
  char* data(const TensorInfo& tensor) const;
  // This rank's part of a parameter's gradient as the last step left it: summed over tokens and ranks, not
  // scaled. Elements [first, first + count) of the parameter local to the rank. Valid until the next call of
  // step(), evaluate() or logits(). NULL, 0 where nothing is held.
  struct GradientPart {
    const char* data = nullptr;
    int64_t first = 0, count = 0;
  };
  GradientPart gradient(const std::string& param) const;
  Executor* train_executor() { return train_executor_.get(); }
  RankDevice& device() { return *device_; }
  // Ends every wait of this rank. [thread-safe]
  void abort();

 private:
  Session(const Recipe& recipe, const PluginSet& plugins, const SessionOptions& options)
      : recipe_(recipe), plugins_(plugins), options_(options) {}
  Status open_all();
  Status agree(const std::string& what, const std::string& mine);
  Status prepare_control();
  void initialise_params();
  // This rank's program of a kind.
  const Program& mine(const Compiled& compiled) const { return compiled.of(options_.id.rank); }
  const Program& layout() const { return mine(programs_->layout()); }
  Status feed(const Program& program, const std::vector<int64_t>& batch);
  double read(const Program& program, const std::string& output) const;
  std::string meta() const;
  std::vector<checkpoint::TensorPart> parts_to_save() const;
  // Every rank's bytes, by rank.
  Result<std::vector<std::string>> exchange(const std::string& key, const std::string& mine);
  Result<std::string> from_rank_0(const std::string& key, Error failed,
                                  const std::function<Result<std::string>()>& work);
  Result<std::string> choose_checkpoint(checkpoint::Storage& storage, const std::string& directory);
  Status check_same_run(const checkpoint::Manifest& manifest, const Json& meta,
                        const std::string& place) const;

  const Recipe& recipe_;
  const PluginSet& plugins_;
  SessionOptions options_;
  std::unique_ptr<run::RendezvousTable> table_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Feeder> feeder_;
  std::optional<Sampler> sampler_;
  std::shared_ptr<const Programs> programs_;
  std::unique_ptr<RankDevice> device_;
  std::unique_ptr<Executor> train_executor_, eval_executor_, logits_executor_;
  Handle<tenon_comm_plan> control_;
  int64_t control_word_ = 0;
  int64_t steps_done_ = 0;
  int64_t steps_here_ = 0;    // of this session
  int64_t at_once_step_ = 0;  // in which transfers were waited for at once
  double transfers_alone_ = 0, transfers_exposed_ = 0;
  std::optional<StepTrace> trace_;
  int64_t attempt_ = 1;
  int64_t saves_ = 0, resumes_ = 0;  // calls so far: their exchanges between ranks have names of their own
  std::vector<checkpoint::Rejected> passed_over_;
};

}  // namespace tenon
