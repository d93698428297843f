// What tenon_run_open makes: a recipe, its plugins, and a session per rank of this process, each on a thread
// of its own. Calls are serialised by the embedding program.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "embed/context.h"
#include "embed/team.h"
#include "embed/views.h"
#include "graph/recipe.h"
#include "run/checkpoints.h"
#include "run/rendezvous/memory_rendezvous.h"
#include "run/rendezvous/tcp_client.h"
#include "run/rendezvous/tcp_server.h"
#include "run/whole_tensors.h"

namespace tenon::embed {

// How ranks meet. In one process through memory; in several through a server, which rank 0 may hold.
struct Meeting {
  int64_t first_rank = 0;  // of this process
  int64_t world = 1;
  std::unique_ptr<run::TcpServer> server;
  std::unique_ptr<run::Rendezvous> rendezvous;  // NULL where this process is alone in the world
  run::MemoryRendezvous* memory = nullptr;      // what is within, if ranks are threads
  run::TcpClient* client = nullptr;             // or processes
};

// One of this process.
struct Rank {
  std::unique_ptr<Session> session;
  std::optional<Checkpoints> checkpoints;
  std::unique_ptr<WholeTensors> tensors;  // from their first use on

  void close();
};

// A010 unless they make sense together: flags and ranks; how ranks meet.
Status check_ranks(const tenon_run_options& options);
Status check_meeting(const tenon_run_options& options);

// What tenon_run_abort leaves behind, and calls look at.
struct AbortState {
  std::mutex mutex;      // guards what follows
  bool working = false;  // ranks are in a call
  bool asked = false;    // and no call has returned it
  bool told = false;     // the ranks, which do not work any more
};

class Run {
 public:
  // `root`: where relative data paths start. Errors are located in the recipe's source.
  static Result<std::unique_ptr<Run>> open(Context& context, ResolvedRecipe resolved, std::string root,
                                           const tenon_run_options& options);
  // The same as far as nothing is allocated and nobody met.
  static Result<tenon_check_result> check(Context& context, ResolvedRecipe resolved, const std::string& root,
                                          const tenon_run_options& options);
  ~Run();

  // TENON_E_STATE while a view is exported.
  Status may_close() const { return views_.none_live("closing a run"); }

  // Nothing when the recipe's last step was done before.
  Result<std::optional<StepResult>> step();
  // The batch is of as many samples and tokens as the recipe's.
  Result<std::optional<StepResult>> step_on(const GivenBatch& batch);
  // None: as the recipe says.
  Status set_lr(std::optional<double> lr);
  // Ends the call that is in progress, else the next. [thread-safe]
  void abort();
  Result<EvalResult> evaluate();
  Result<std::vector<double>> logits(const std::vector<int32_t>& tokens);
  Status save(const std::string& directory);
  Status resume(const std::string& directory);
  Result<DLManagedTensorVersioned*> view(const std::string& name);
  Status read(const std::string& name, const DLTensor& into);
  Status write(const std::string& name, const DLTensor& from);
  Result<tenon_info> info() const;
  // Of the whole model, parameters first.
  const std::vector<WholeTensor>& tensors() const { return tensors_; }
  // Error E025.
  Result<const WholeTensor*> tensor(const std::string& name) const;
  const Recipe& recipe() const { return recipe_; }

  Context& context() { return context_; }

 private:
  Run(Context& context, ResolvedRecipe resolved) : context_(context), resolved_(std::move(resolved)) {}
  Status prepare(std::string root, const tenon_run_options& options);
  Result<tenon_check_result> prove(const std::string& root, const tenon_run_options& options);
  Status read(bool in_process);
  Status meet(const tenon_run_options& options);
  int64_t ranks_for(const tenon_run_options& options) const;
  Status open_sessions();
  void close_ranks();
  Status choose_run_id();
  void part() noexcept;
  Status reopen();
  // Whether other processes take part: then nothing begins before all have passed the same.
  bool has_peers() const { return meeting_.memory == nullptr && meeting_.world > 1; }
  using Passed = std::vector<std::span<const std::byte>>;
  Status agree(Rank& rank, const std::string& call, const Passed& passed) const;
  static Status open_tensors(Rank& rank);
  Status usable(const std::string& call) const;
  Status present() const;
  bool can_reopen() const;
  Status may_step() const;
  Status begin_work();
  bool end_work();
  // Whether the run can go on after an error. If not, nobody may wait for the rank that had it.
  using Survives = bool (*)(const Error&);
  template <class T>
  Result<T> on_ranks(Survives survives, const std::function<Result<T>(Rank&)>& call);
  void give_up(const Error& error);

  Context& context_;
  ResolvedRecipe resolved_;
  Recipe recipe_;
  PluginSet plugins_;
  std::string run_id_;
  SessionOptions common_;  // of all ranks
  Meeting meeting_;
  std::unique_ptr<Team> team_;
  std::vector<Rank> ranks_;
  std::vector<WholeTensor> tensors_;
  std::optional<double> lr_;  // of the host's
  AbortState abort_;
  Views views_;
  std::optional<Error> broken_;  // for good
  std::optional<Error> torn_;    // until a checkpoint is loaded: tensors are a mixture
};

}  // namespace tenon::embed
