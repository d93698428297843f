// A run in an embedding program: opening, closing, and the calls that all its ranks make together.
#include "embed/run.h"

#include <algorithm>
#include <array>
#include <exception>
#include <new>

#include "host/resolve.h"
#include "run/cause.h"

namespace tenon::embed {
namespace {

bool is_one_of(const Error& error, std::initializer_list<const char*> codes) {
  return std::any_of(codes.begin(), codes.end(), [&](const char* code) { return error.code == code; });
}

// Every rank sees the same, before or after all communication.
bool step_survives(const Error& error) { return error.code == "N001"; }
bool eval_survives(const Error& error) { return is_one_of(error, {"D004", "N001"}); }
bool logits_survives(const Error& error) { return error.kind == TENON_E_ARGUMENT || error.code == "N001"; }
// Ranks tell each other how far they came.
bool storage_survives(const Error& error) { return error.code.starts_with('C'); }

// A rank's thread must not let an exception out.
template <class T>
Result<T> caught(const std::function<Result<T>(Rank&)>& call, Rank& rank) {
  try {
    return call(rank);
  } catch (const std::bad_alloc&) {
    return Error{"E010", "out of memory", "", "", TENON_E_MEMORY};
  } catch (const std::exception& e) {
    return Error{"E021", e.what(), "", "", TENON_E_INTERNAL};
  }
}

}  // namespace

template <class T>
Result<T> Run::on_ranks(Survives survives, const std::function<Result<T>(Rank&)>& call) {
  std::vector<std::optional<Result<T>>> ends(ranks_.size());
  team_->run([&](int i) {
    auto& end = ends[static_cast<size_t>(i)];
    Rank& rank = ranks_[static_cast<size_t>(i)];
    end.emplace(caught(call, rank));
    if (end->ok() || survives(end->error())) return;
    rank.session->abort();
    give_up(end->error());
  });
  Cause cause;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (!ends[i]->ok()) cause.hear(meeting_.first_rank + static_cast<int64_t>(i), ends[i]->error());
  }
  if (!cause.error()) return std::move(*ends[0]);
  Error error = locate(*cause.error(), resolved_);
  if (!survives(error)) broken_ = error;
  return error;
}

void Run::give_up(const Error& error) {
  if (meeting_.memory != nullptr) meeting_.memory->abort(error.cause);
  if (meeting_.server != nullptr) meeting_.server->abort(error.cause);
}

Status Run::usable(const std::string& call) const {
  if (broken_) {
    return Error{"E022", call + " after a failure of the run: " + broken_->cause, broken_->place,
                 "close the run, open another and resume from a checkpoint", TENON_E_STATE};
  }
  if (torn_) {
    return Error{"E023", call + " after a checkpoint was loaded in part: " + torn_->cause, torn_->place,
                 "resume from a sound checkpoint, or close the run", TENON_E_STATE};
  }
  return {};
}

// -- opening ------------------------------------------------------------------------------------------

Result<std::unique_ptr<Run>> Run::open(Context& context, ResolvedRecipe resolved, std::string root,
                                       const tenon_run_options& options) {
  std::unique_ptr<Run> out(new Run(context, std::move(resolved)));
  auto prepared = out->prepare(std::move(root), options);
  if (prepared.ok()) return out;
  out->broken_ = prepared.error();
  return locate(std::move(prepared).error(), out->resolved_);
}

Status Run::prepare(std::string root, const tenon_run_options& options) {
  TENON_CHECK(check_options(options));
  TENON_CHECK(read(options.world == 0));
  training_ = (options.flags & TENON_RUN_NO_TRAINING) == 0;
  SessionOptions common;
  common.root = std::move(root);
  common.training = training_;
  if (options.timeout_ns > 0) common.timeout_ns = options.timeout_ns;
  timeout_ns_ = common.timeout_ns;
  TENON_CHECK(meet(options));
  TENON_CHECK(choose_run_id());
  // Ranks that are threads share one; what refuses their number does so before they are started.
  if (meeting_.memory != nullptr) {
    TENON_TRY(common.programs, compile_programs(recipe_, plugins_, meeting_.world, training_));
  }
  return open_sessions(common);
}

Status Run::read(bool in_process) {
  TENON_TRY(recipe_, read_recipe(resolved_.recipe));
  constexpr const char* kLocal = "comm/local";
  if (in_process && recipe_.comm.id != kLocal) {
    const std::string message = "ranks in one process communicate through " + std::string(kLocal) +
                                ", not through " + recipe_.comm.id;
    context_.registry().host().log(TENON_LOG_INFO, recipe_.name, 0, message);
    recipe_.comm = {kLocal, "{}", "/comm/options"};
  }
  TENON_TRY(plugins_, load_plugins(context_.registry(), recipe_));
  if (in_process || (plugins_.comm.table->flags & TENON_COMM_IN_PROCESS) == 0) return {};
  return Error{"P022", recipe_.comm.id + " connects ranks of one process only", "/comm/plugin",
               "name another comm plugin, or use virtual ranks", TENON_E_RECIPE};
}

Status Run::open_sessions(const SessionOptions& common) {
  const int here = meeting_.memory != nullptr ? static_cast<int>(meeting_.world) : 1;
  TENON_TRY(team_, Team::start(here, context_.log()));
  ranks_.resize(static_cast<size_t>(here));
  std::vector<Status> opened(ranks_.size());
  team_->run([&](int i) {
    const auto at = static_cast<size_t>(i);
    SessionOptions mine = common;
    mine.id = {meeting_.first_rank + i, meeting_.world};
    mine.rendezvous = meeting_.rendezvous.get();
    mine.threads = context_.threads(here);
    try {
      auto session = Session::open(recipe_, plugins_, mine);
      if (session.ok()) {
        ranks_[at].session = std::move(session).value();
        ranks_[at].checkpoints.emplace(*ranks_[at].session);
      } else {
        opened[at] = std::move(session).error();
      }
    } catch (const std::exception& e) {
      opened[at] = Error{"E021", e.what(), "", "", TENON_E_INTERNAL};
    }
    if (!opened[at].ok()) give_up(opened[at].error());
  });
  Cause cause;
  for (size_t i = 0; i < opened.size(); ++i) {
    if (!opened[i].ok()) cause.hear(meeting_.first_rank + static_cast<int64_t>(i), opened[i].error());
  }
  if (!cause.error()) return {};
  return *cause.error();
}

Run::~Run() {
  if (team_ != nullptr) {
    // Each on its own thread, all at once, as they were opened: a domain may end together with its peers.
    team_->run([this](int i) { ranks_[static_cast<size_t>(i)].session.reset(); });
  }
  part();
}

// -- what all ranks do together -----------------------------------------------------------------------

Result<std::optional<StepResult>> Run::step() {
  TENON_CHECK(views_.none_live("a step"));
  TENON_CHECK(usable("a step"));
  if (!training_) {
    return Error{"E024", "a step of a run that was opened without training", "",
                 "open it without TENON_RUN_NO_TRAINING", TENON_E_STATE};
  }
  if (ranks_[0].session->steps_done() >= recipe_.steps) return std::optional<StepResult>();
  TENON_TRY(const StepResult done,
            on_ranks<StepResult>(step_survives, [](Rank& r) { return r.session->step(); }));
  return std::optional<StepResult>(done);
}

Result<EvalResult> Run::evaluate() {
  TENON_CHECK(usable("an evaluation"));
  return on_ranks<EvalResult>(eval_survives, [](Rank& r) { return r.session->evaluate(); });
}

Result<std::vector<double>> Run::logits(const std::vector<int32_t>& tokens) {
  TENON_CHECK(usable("logits"));
  return on_ranks<std::vector<double>>(logits_survives, [&](Rank& r) { return r.session->logits(tokens); });
}

Status Run::save(const std::string& directory) {
  TENON_CHECK(usable("a save"));
  checkpoint::PosixStorage storage;
  TENON_TRY(const std::string path, on_ranks<std::string>(storage_survives, [&](Rank& r) {
              return r.checkpoints->save(storage, directory, run_id_);
            }));
  return {};
}

Status Run::resume(const std::string& directory) {
  TENON_CHECK(views_.none_live("resuming"));
  if (broken_) TENON_CHECK(usable("resuming"));
  checkpoint::PosixStorage storage;
  auto loaded =
      on_ranks<Loaded>(storage_survives, [&](Rank& r) { return r.checkpoints->load(storage, directory); });
  if (!loaded.ok()) {
    // Found out before the first byte was read.
    const bool unchanged = is_one_of(loaded.error(), {"C001", "C003", "C005", "C013", "C020", "C021"});
    if (!unchanged) torn_ = loaded.error();
    return std::move(loaded).error();
  }
  torn_.reset();
  for (const auto& damaged : loaded->passed_over) {
    context_.registry().host().log(TENON_LOG_WARN, damaged.directory, 0,
                                   "passed over: " + damaged.error.cause);
  }
  // What is saved next continues that run: a folder holds checkpoints of one run only.
  run_id_ = loaded->run_id;
  return {};
}

// -- looking ------------------------------------------------------------------------------------------

Result<DLManagedTensorVersioned*> Run::view(const std::string& name) {
  Session& session = *ranks_[0].session;
  const TensorInfo* const tensor = session.tensors().find(name);
  if (tensor == nullptr) {
    return Error{"E025", "no tensor is named '" + name + "'", "", "tenon_run_tensor_name tells the names",
                 TENON_E_ARGUMENT};
  }
  std::vector<int64_t> whole;
  for (const Dim& dim : tensor->dims) whole.push_back(dim.size);
  if (tensor->operand.dims != whole || tensor->depth > 0) {
    return Error{"E026",
                 "'" + name + "' is " +
                     (tensor->depth > 0
                          ? "cut into flat parts"
                          : "sharded, " + text(tensor->placement, tensor->dims, session.device().mesh())) +
                     ": this rank holds a part of it only",
                 "", "save, and read the checkpoint", TENON_E_UNSUPPORTED};
  }
  const DLDevice device{static_cast<DLDeviceType>(plugins_.kernels.table->device_type), 0};
  return views_.make({name, session.tensors().data(*tensor), device, tensor->operand.dtype, whole});
}

tenon_info Run::info() const {
  const Session& session = *ranks_[0].session;
  tenon_info out{};
  out.rank = static_cast<int32_t>(meeting_.first_rank);
  out.world = static_cast<int32_t>(meeting_.world);
  out.training = training_ ? 1 : 0;
  out.steps_done = session.steps_done();
  out.total_steps = recipe_.steps;
  out.batch = recipe_.batch;
  out.context = recipe_.context;
  for (const TensorInfo& param : session.tensors().params()) out.num_parameters += elements(param.dims);
  out.num_param_tensors = session.tensors().params().size();
  out.num_tensors = session.tensors().params().size() + session.tensors().states().size();
  out.planned_bytes = session.memory().total();
  return out;
}

const char* Run::tensor_name(uint64_t index) const {
  const Session& session = *ranks_[0].session;
  const size_t params = session.tensors().params().size();
  if (index < params) return session.tensors().params()[index].name.c_str();
  return index - params < session.tensors().states().size()
             ? session.tensors().states()[index - params].name.c_str()
             : nullptr;
}

}  // namespace tenon::embed
