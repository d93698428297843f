// One rank's training run: programs, memory and place in the data. The loop around it belongs to the caller
// (the command, or a program that embeds Tenon). Checkpoints (checkpoints.h), traces (trace.h) and stopping
// together (vote.h) are beside it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "run/device.h"
#include "run/executor.h"
#include "run/overlap.h"
#include "run/peers.h"
#include "run/programs.h"
#include "run/sampler.h"
#include "run/tensors.h"
#include "run/word_sum.h"

namespace tenon {

struct SessionOptions {
  RankId id;
  run::Rendezvous* rendezvous = nullptr;  // may be NULL when world is 1; outlives the session
  std::string root;                       // relative data paths start here
  int threads = 1;                        // of this rank
  int64_t timeout_ns = 120'000'000'000;   // for every wait on peers
  bool training = true;                   // false: no train program (eval, sample)
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
  bool at_once = false;  // each transfer was waited for where it started, to learn what that costs
};

struct EvalResult {
  double loss = 0;
  int64_t tokens = 0;
};

class Session {
 public:
  // Compiles, agrees on the program's hash with all ranks, allocates, prepares, initialises parameters.
  // Collective. `recipe` and `plugins` are borrowed.
  static Result<std::unique_ptr<Session>> open(const Recipe& recipe, const PluginSet& plugins,
                                               const SessionOptions& options);
  ~Session();

  // One optimizer step on the recipe's next samples. Collective. Error N001 when the loss is not finite, N002
  // when the optimizer is seen to have done nothing, or to have made no number, of all ranks alike; the step
  // then counts as not done and parameters may hold NaN: load a checkpoint. `times`: as for Executor::run.
  Result<StepResult> step(InstrTimes* times = nullptr);
  // The same on the caller's samples, which check() accepts; those of the recipe's that come next stay the
  // same. Collective.
  Result<StepResult> step_on(const GivenBatch& batch);
  // Error A010 where a token or target is none of the model's.
  Status check(const GivenBatch& batch) const;
  // Of all steps from now on; none: the recipe's schedule says it. All ranks are to set the same.
  void set_lr(std::optional<double> lr) { lr_ = lr; }
  // Mean loss over eval.batches batches of the held-out tail, or over all of it. Error N001. Collective.
  Result<EvalResult> evaluate();
  // Logits of the last of `tokens` (at most `context`). Error N001. Collective.
  Result<std::vector<double>> logits(const std::vector<int32_t>& tokens);

  int64_t steps_done() const { return steps_done_; }
  // Of the recipe's, since the start of training: where it is in the data.
  int64_t samples_seen() const { return samples_seen_; }
  // The tensors are those behind step `done`: the next step is the one after it.
  void go_on_from(int64_t done, int64_t samples_seen) {
    steps_done_ = done;
    samples_seen_ = samples_seen;
  }

  const std::string& root() const { return options_.root; }
  const Recipe& recipe() const { return recipe_; }
  const Programs& programs() const { return *programs_; }
  const Program& train_program() const { return mine(*programs_->train); }
  // The programs of all ranks, which a session that compiled for one rank alone makes anew.
  Result<std::shared_ptr<const Compiled>> train_programs_of_all() const;
  const Tensors& tensors() const { return *tensors_; }
  RankDevice& device() { return *device_; }
  const RankDevice& device() const { return *device_; }
  Peers& peers() { return peers_; }
  Feeder& feeder() { return *feeder_; }
  Executor* train_executor() { return train_executor_.get(); }
  RankMemory memory() const { return planned_memory(*programs_, options_.id.rank); }
  Overlap overlap() const { return overlap_.overlap(); }
  // Ends every wait of this rank, and its work between two instructions, for good. [thread-safe]
  void abort();

 private:
  Session(const Recipe& recipe, const PluginSet& plugins, const SessionOptions& options)
      : recipe_(recipe),
        plugins_(plugins),
        options_(options),
        peers_(options.id, options.rendezvous, options.timeout_ns),
        overlap_(options.id.world) {}
  Status open_all();
  Status agree_on_programs();
  Status open_device(const Mesh& mesh);
  // This rank's program of a kind.
  const Program& mine(const Compiled& compiled) const { return compiled.of(options_.id.rank); }
  // Fills the inputs of one microbatch of this rank.
  using Fill = std::function<Status(const BatchSlice& slice, const std::vector<TokenRange>& ranges,
                                    const std::map<std::string, char*>& inputs)>;
  Status feed(const Program& program, const Fill& fill);
  Fill from_data(std::vector<int64_t> batch);
  Result<StepResult> take_step(const Fill& fill, InstrTimes* times);
  bool is_watched(int64_t step) const;
  Status judge(const StepResult& step, bool watched);
  Status judge_together(const StepResult& step, const Status& number);
  void spoil_used_arena(const Program& program);
  double read(const Program& program, const std::string& output) const;

  const Recipe& recipe_;
  const PluginSet& plugins_;
  SessionOptions options_;
  Peers peers_;
  OverlapMeter overlap_;
  std::unique_ptr<run::RendezvousTable> table_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Feeder> feeder_;
  std::optional<Sampler> sampler_;
  std::shared_ptr<const Programs> programs_;
  TokenLimits limits_;
  std::unique_ptr<RankDevice> device_;
  std::optional<Tensors> tensors_;
  std::unique_ptr<WordSum> seen_;  // of the updates, by all ranks
  std::unique_ptr<Executor> train_executor_, eval_executor_, logits_executor_;
  int64_t steps_done_ = 0, samples_seen_ = 0;
  std::optional<double> lr_;  // set by the caller
  bool has_stepped_ = false;
  bool used_arena_ = false;  // since it was allocated
};

}  // namespace tenon
