// A run in an embedding program: opening, closing, and the calls that all its ranks make together.
#include "embed/run.h"

#include <algorithm>
#include <array>
#include <exception>
#include <new>

#include "base/hash.h"
#include "embed/host_tensor.h"
#include "host/resolve.h"
#include "run/cause.h"

namespace tenon::embed {
namespace {

bool is_one_of(const Error& error, std::initializer_list<const char*> codes) {
  return std::any_of(codes.begin(), codes.end(), [&](const char* code) { return error.code == code; });
}

// Every rank sees the same, before or after all communication.
bool step_survives(const Error& error) { return is_one_of(error, {"E030", "N001", "N002"}); }
bool tensors_survive(const Error& error) { return error.code == "E030"; }
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

Error was_aborted(const std::string& place) {
  return Error{"E031", "tenon_run_abort was called", place, "", TENON_E_ABORTED};
}

}  // namespace

void Rank::close() {
  tensors.reset();
  checkpoints.reset();
  session.reset();
}

// -- aborting -----------------------------------------------------------------------------------------

void Run::abort() {
  const std::lock_guard lock(abort_.mutex);
  abort_.asked = true;
  if (!abort_.working) return;
  abort_.told = true;
  for (Rank& rank : ranks_) rank.session->abort();
  give_up(was_aborted(""));
  if (meeting_.client != nullptr) meeting_.client->abort();
}

// E031 where it was asked for before.
Status Run::begin_work() {
  const std::lock_guard lock(abort_.mutex);
  if (!abort_.asked) {
    abort_.working = true;
    return {};
  }
  abort_.asked = false;
  Error error = was_aborted("");
  if (abort_.told) broken_ = error;
  return error;
}

// Whether the ranks were told to stop meanwhile.
bool Run::end_work() {
  const std::lock_guard lock(abort_.mutex);
  abort_.working = false;
  return abort_.told;
}

// -- what all ranks do together -----------------------------------------------------------------------

template <class T>
Result<T> Run::on_ranks(Survives survives, const std::function<Result<T>(Rank&)>& call) {
  TENON_CHECK(begin_work());
  std::vector<std::optional<Result<T>>> ends(ranks_.size());
  team_->run([&](int i) {
    auto& end = ends[static_cast<size_t>(i)];
    Rank& rank = ranks_[static_cast<size_t>(i)];
    end.emplace(caught(call, rank));
    if (end->ok() || survives(end->error())) return;
    rank.session->abort();
    give_up(end->error());
  });
  const bool aborted = end_work();
  Cause cause;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (!ends[i]->ok()) cause.hear(meeting_.first_rank + static_cast<int64_t>(i), ends[i]->error());
  }
  if (!cause.error()) return std::move(*ends[0]);  // an abort came too late: the next call says it
  Error error = locate(*cause.error(), resolved_);
  if (aborted) {
    if (witness_of(error) != Witness::own) error = was_aborted(error.place);
    const std::lock_guard lock(abort_.mutex);
    abort_.asked = false;
  }
  if (aborted || !survives(error)) broken_ = error;
  return error;
}

void Run::give_up(const Error& error) {
  if (meeting_.memory != nullptr) meeting_.memory->abort(error.cause);
  if (meeting_.server != nullptr) meeting_.server->abort(error.cause);
}

bool Run::can_reopen() const { return broken_ && broken_->code == "E031" && !has_peers(); }

// After a reopening that failed.
Status Run::present() const {
  if (ranks_[0].session != nullptr) return {};
  return usable("looking");
}

Status Run::usable(const std::string& call) const {
  if (broken_) {
    return Error{"E022", call + " after a failure of the run: " + broken_->cause, broken_->place,
                 can_reopen() ? "resume from a checkpoint, or close the run"
                              : "close the run, open another and resume from a checkpoint",
                 TENON_E_STATE};
  }
  if (torn_ && torn_->code == "E031") {
    return Error{"E022", call + " after the run was aborted", torn_->place,
                 "resume from a checkpoint, or close the run", TENON_E_STATE};
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
  TENON_CHECK(check_ranks(options));
  TENON_CHECK(check_meeting(options));
  TENON_CHECK(read(options.world == 0));
  common_.root = std::move(root);
  common_.training = (options.flags & TENON_RUN_NO_TRAINING) == 0;
  if (options.timeout_ns > 0) common_.timeout_ns = options.timeout_ns;
  TENON_CHECK(meet(options));
  TENON_CHECK(choose_run_id());
  // Ranks that are threads share one; what refuses their number does so before they are started.
  if (meeting_.memory != nullptr) {
    TENON_TRY(common_.programs, compile_programs(recipe_, plugins_, meeting_.world, common_.training));
  }
  TENON_CHECK(open_sessions());
  tensors_ = whole_tensors(ranks_[0].session->programs().layout());
  return {};
}

Result<tenon_check_result> Run::prove(const std::string& root, const tenon_run_options& options) {
  TENON_CHECK(check_ranks(options));
  TENON_CHECK(read(options.world == 0));
  tenon_check_result out{};
  const int64_t ranks = ranks_for(options);
  const bool training = (options.flags & TENON_RUN_NO_TRAINING) == 0;
  TENON_TRY(const auto programs, compile_programs(recipe_, plugins_, ranks, training));
  TENON_TRY(const auto feeder, Feeder::open(plugins_.data, root, recipe_.context));
  TENON_CHECK(Sampler::create(feeder->num_samples(), recipe_.valid, recipe_.seed));
  TENON_CHECK(check_vocabulary(programs->eval, feeder->token_limit()));
  out.ranks = static_cast<int32_t>(ranks);
  out.programs = std::ssize(programs->eval.programs) + std::ssize(programs->logits.programs);
  if (programs->train) out.programs += std::ssize(programs->train->programs);
  out.num_parameters = num_parameters(programs->layout());
  out.samples = feeder->num_samples();
  for (int64_t rank = 0; rank < ranks; ++rank)
    out.planned_bytes = std::max(out.planned_bytes, planned_memory(*programs, rank).total());
  return out;
}

Result<tenon_check_result> Run::check(Context& context, ResolvedRecipe resolved, const std::string& root,
                                      const tenon_run_options& options) {
  Run run(context, std::move(resolved));
  auto proved = run.prove(root, options);
  if (proved.ok()) return proved;
  return locate(std::move(proved).error(), run.resolved_);
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

Status Run::open_sessions() {
  const int here = meeting_.memory != nullptr ? static_cast<int>(meeting_.world) : 1;
  TENON_TRY(team_, Team::start(here, context_.log()));
  ranks_.resize(static_cast<size_t>(here));
  std::vector<Status> opened(ranks_.size());
  team_->run([&](int i) {
    const auto at = static_cast<size_t>(i);
    SessionOptions mine = common_;
    mine.id = {meeting_.first_rank + i, meeting_.world};
    mine.rendezvous = meeting_.rendezvous.get();
    mine.threads = context_.threads(here);
    try {
      auto session = Session::open(recipe_, plugins_, mine);
      if (session.ok()) {
        ranks_[at].session = std::move(session).value();
        ranks_[at].session->set_lr(lr_);
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

// Each on its own thread, all at once, as they were opened: a domain may end together with its peers.
void Run::close_ranks() {
  if (team_ == nullptr) return;
  team_->run([this](int i) { ranks_[static_cast<size_t>(i)].close(); });
  team_.reset();
}

Run::~Run() {
  close_ranks();
  part();
}

// -- training, evaluating, checkpoints ----------------------------------------------------------------

Status Run::may_step() const {
  TENON_CHECK(views_.none_live("a step"));
  TENON_CHECK(usable("a step"));
  if (common_.training) return {};
  return Error{"E024", "a step of a run that was opened without training", "",
               "open it without TENON_RUN_NO_TRAINING", TENON_E_STATE};
}

Result<std::optional<StepResult>> Run::step() {
  TENON_CHECK(may_step());
  if (ranks_[0].session->steps_done() >= recipe_.steps) return std::optional<StepResult>();
  TENON_TRY(const StepResult done,
            on_ranks<StepResult>(step_survives, [](Rank& r) { return r.session->step(); }));
  return std::optional<StepResult>(done);
}

Result<std::optional<StepResult>> Run::step_on(const GivenBatch& batch) {
  TENON_CHECK(may_step());
  TENON_CHECK(ranks_[0].session->check(batch));
  if (ranks_[0].session->steps_done() >= recipe_.steps) return std::optional<StepResult>();
  const auto bytes = static_cast<size_t>(recipe_.batch * recipe_.context) * sizeof(int32_t);
  const auto step = [&](Rank& r) -> Result<StepResult> {
    TENON_CHECK(agree(r, "tenon_run_step_on",
                      {{reinterpret_cast<const std::byte*>(batch.tokens), bytes},
                       {reinterpret_cast<const std::byte*>(batch.targets), bytes}}));
    return r.session->step_on(batch);
  };
  TENON_TRY(const StepResult done, on_ranks<StepResult>(step_survives, step));
  return std::optional<StepResult>(done);
}

Status Run::set_lr(std::optional<double> lr) {
  if (has_peers()) {
    TENON_CHECK(usable("setting the learning rate"));
    const std::array<double, 1> passed{lr.value_or(-1)};  // which is none that can be set
    TENON_CHECK(on_ranks<void>(tensors_survive, [&](Rank& r) {
      return agree(r, "tenon_run_set_lr", {std::as_bytes(std::span(passed))});
    }));
  }
  lr_ = lr;
  for (Rank& rank : ranks_) {
    if (rank.session != nullptr) rank.session->set_lr(lr);
  }
  return {};
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
  if (broken_) {
    if (!can_reopen()) TENON_CHECK(usable("resuming"));
    if (Status opened = reopen(); !opened.ok()) {
      broken_ = opened.error();
      return locate(std::move(opened).error(), resolved_);
    }
  }
  checkpoint::PosixStorage storage;
  auto loaded =
      on_ranks<Loaded>(storage_survives, [&](Rank& r) { return r.checkpoints->load(storage, directory); });
  if (!loaded.ok()) {
    // Found out before the first byte was read.
    const bool unchanged =
        is_one_of(loaded.error(), {"C001", "C003", "C005", "C013", "C020", "C021", "E031"});
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

Result<const WholeTensor*> Run::tensor(const std::string& name) const {
  const auto found = std::ranges::find(tensors_, name, &WholeTensor::name);
  if (found != tensors_.end()) return &*found;
  return Error{"E025", "no tensor is named '" + name + "'", "", "tenon_run_tensor_name tells the names",
               TENON_E_ARGUMENT};
}

// Before anything is done with what was passed.
Status Run::agree(Rank& rank, const std::string& call, const Passed& passed) const {
  if (!has_peers()) return {};
  TENON_CHECK(open_tensors(rank));
  std::string digests = call;
  for (const auto& bytes : passed) {
    for (const uint64_t word : xxh3_128(bytes)) digests += "/" + std::to_string(word);
  }
  return rank.tensors->agree(call, digests);
}

Status Run::open_tensors(Rank& rank) {
  if (rank.tensors != nullptr) return {};
  TENON_TRY(rank.tensors, WholeTensors::open(*rank.session));
  return {};
}

Status Run::read(const std::string& name, const DLTensor& into) {
  TENON_CHECK(usable("reading a tensor"));
  TENON_TRY(const WholeTensor* const whole, tensor(name));
  TENON_TRY(std::byte* const memory, memory_of(into, *whole));
  return on_ranks<void>(tensors_survive, [&](Rank& r) -> Status {
    TENON_CHECK(agree(r, "tenon_run_read", {std::as_bytes(std::span(name))}));
    TENON_CHECK(open_tensors(r));
    return r.tensors->read(*whole, &r == ranks_.data() ? memory : nullptr);
  });
}

Status Run::write(const std::string& name, const DLTensor& from) {
  TENON_CHECK(views_.none_live("writing a tensor"));
  TENON_CHECK(usable("writing a tensor"));
  TENON_TRY(const WholeTensor* const whole, tensor(name));
  TENON_TRY(const std::byte* const memory, memory_of(from, *whole));
  return on_ranks<void>(tensors_survive, [&](Rank& r) -> Status {
    TENON_CHECK(agree(r, "tenon_run_write", {std::as_bytes(std::span(name)), {memory, whole->bytes()}}));
    TENON_CHECK(open_tensors(r));
    r.tensors->write(*whole, memory);
    return {};
  });
}

Result<DLManagedTensorVersioned*> Run::view(const std::string& name) {
  TENON_CHECK(present());
  TENON_TRY(const WholeTensor* const whole, tensor(name));
  Session& session = *ranks_[0].session;
  const TensorInfo* const held = session.tensors().find(name);
  if (held == nullptr || held->operand.dims != whole->dims || held->depth > 0) {
    const std::string how = held == nullptr ? "on another stage: this rank holds none of it"
                            : held->depth > 0
                                ? "cut into flat parts: this rank holds a part of it only"
                                : "sharded, " + text(held->placement, held->dims, session.device().mesh()) +
                                      ": this rank holds a part of it only";
    return Error{"E026", "'" + name + "' is " + how, "", "tenon_run_read gives all of it",
                 TENON_E_UNSUPPORTED};
  }
  const DLDevice device{static_cast<DLDeviceType>(plugins_.kernels.base().table->device_type), 0};
  return views_.make({name, session.tensors().data(*held), device, whole->dtype, whole->dims});
}

Result<tenon_info> Run::info() const {
  TENON_CHECK(present());
  const Session& session = *ranks_[0].session;
  tenon_info out{};
  out.rank = static_cast<int32_t>(meeting_.first_rank);
  out.world = static_cast<int32_t>(meeting_.world);
  out.training = common_.training ? 1 : 0;
  out.steps_done = session.steps_done();
  out.total_steps = recipe_.steps;
  out.batch = recipe_.batch;
  out.context = recipe_.context;
  out.num_parameters = num_parameters(session.programs().layout());
  out.num_tensors = tensors_.size();
  out.num_param_tensors = static_cast<uint64_t>(std::ranges::count(tensors_, false, &WholeTensor::is_state));
  out.planned_bytes = session.memory().total();
  return out;
}

}  // namespace tenon::embed
