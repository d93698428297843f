// What tenon_run_open makes: a recipe, its plugins, and a session per rank of this process, each on a thread
// of its own. Calls are serialised by the embedding program.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "embed/context.h"
#include "embed/team.h"
#include "embed/views.h"
#include "graph/recipe.h"
#include "run/checkpoints.h"
#include "run/rendezvous/memory_rendezvous.h"
#include "run/rendezvous/tcp_server.h"

namespace tenon::embed {

// How ranks meet. In one process through memory; in several through a server, which rank 0 may hold.
struct Meeting {
  int64_t first_rank = 0;  // of this process
  int64_t world = 1;
  std::unique_ptr<run::TcpServer> server;
  std::unique_ptr<run::Rendezvous> rendezvous;  // NULL where this process is alone in the world
  run::MemoryRendezvous* memory = nullptr;      // what is within, if ranks are threads
};

// One of this process.
struct Rank {
  std::unique_ptr<Session> session;
  std::optional<Checkpoints> checkpoints;
};

// A010 unless they make sense together.
Status check_options(const tenon_run_options& options);

class Run {
 public:
  // `root`: where relative data paths start. Errors are located in the recipe's source.
  static Result<std::unique_ptr<Run>> open(Context& context, ResolvedRecipe resolved, std::string root,
                                           const tenon_run_options& options);
  ~Run();

  // TENON_E_STATE while a view is exported.
  Status may_close() const { return views_.none_live("closing a run"); }

  // Nothing when the recipe's last step was done before.
  Result<std::optional<StepResult>> step();
  Result<EvalResult> evaluate();
  Result<std::vector<double>> logits(const std::vector<int32_t>& tokens);
  Status save(const std::string& directory);
  Status resume(const std::string& directory);
  Result<DLManagedTensorVersioned*> view(const std::string& name);
  tenon_info info() const;
  const char* tensor_name(uint64_t index) const;

  Context& context() { return context_; }

 private:
  Run(Context& context, ResolvedRecipe resolved) : context_(context), resolved_(std::move(resolved)) {}
  Status prepare(std::string root, const tenon_run_options& options);
  Status read(bool in_process);
  Status meet(const tenon_run_options& options);
  Status open_sessions(const SessionOptions& common);
  Status choose_run_id();
  void part() noexcept;
  Status usable(const std::string& call) const;
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
  int64_t timeout_ns_ = 0;
  bool training_ = true;
  Meeting meeting_;
  std::unique_ptr<Team> team_;
  std::vector<Rank> ranks_;
  Views views_;
  std::optional<Error> broken_;  // for good
  std::optional<Error> torn_;    // until a checkpoint is loaded: tensors are a mixture
};

}  // namespace tenon::embed
