#include "run/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/hash.h"
#include "run/due.h"

namespace tenon {

Result<std::unique_ptr<Session>> Session::open(const Recipe& recipe, const PluginSet& plugins,
                                               const SessionOptions& options) {
  std::unique_ptr<Session> out(new Session(recipe, plugins, options));
  TENON_CHECK(out->open_all());
  return out;
}

Session::~Session() = default;

Status Session::open_all() {
  TENON_TRY(pool_, ThreadPool::create(std::max(options_.threads, 1), options_.id.world));
  const ThreadPool::Use use(*pool_);
  TENON_TRY(feeder_, Feeder::open(plugins_.data, options_.root, recipe_.context));
  TENON_TRY(sampler_, Sampler::create(feeder_->num_samples(), recipe_.valid, recipe_.seed));
  programs_ = options_.programs;
  if (programs_ == nullptr) {
    TENON_TRY(programs_,
              compile_programs(recipe_, plugins_, options_.id.world, options_.training, options_.id.rank));
  }
  TENON_CHECK(check_vocabulary(programs_->eval, feeder_->token_limit()));
  limits_ = token_limits(programs_->eval);
  int64_t samples = slice_batch(mine(programs_->eval), options_.id.rank, 0).count;
  if (programs_->train) samples = std::max(samples, slice_batch(train_program(), options_.id.rank, 0).count);
  TENON_CHECK(feeder_->expect(limits_, samples));
  TENON_CHECK(peers_.agree("data", feeder_->digest()));
  TENON_CHECK(agree_on_programs());
  TENON_CHECK(open_device(mine(programs_->layout()).mesh));
  tensors_.emplace(mine(programs_->layout()), *device_);
  tensors_->initialise(recipe_.seed);
  if (programs_->train) {
    TENON_TRY(train_executor_, Executor::prepare(train_program(), *device_, recipe_.exact));
    TENON_TRY(seen_, WordSum::open(*device_, 3));
  }
  TENON_TRY(eval_executor_, Executor::prepare(mine(programs_->eval), *device_, recipe_.exact));
  return {};
}

// Each rank has proved the programs of its own class against what all know of one another; so the ranks are
// to have the same recipe, plugins and interfaces, and those of a class the same program.
Status Session::agree_on_programs() {
  TENON_CHECK(peers_.agree("recipe", sha256_hex(recipe_.document)));
  TENON_CHECK(peers_.agree("set of plugins", sha256_hex(names_of(plugins_))));
  std::string common, own;
  for (const Compiled* compiled : programs_->all()) {
    common += interface_hash(*compiled);
    own += program_hash(mine(*compiled));
  }
  TENON_CHECK(peers_.agree("plan", sha256_hex(common)));
  const Program& layout = mine(programs_->layout());
  const auto class_of = [&](int64_t rank) {
    return layout.pipeline_axis == kNone ? 0 : layout.mesh.coordinate(rank)[layout.pipeline_axis];
  };
  return peers_.agree("program", sha256_hex(own), class_of);
}

Result<std::shared_ptr<const Compiled>> Session::train_programs_of_all() const {
  const Compiled& train = *programs_->train;
  if (train.programs.size() == train.classes.size())
    return std::shared_ptr<const Compiled>(programs_, &train);
  TENON_TRY(const CompileOptions options, compile_options(recipe_, plugins_, train_program().mesh));
  TENON_TRY(Compiled all, compile(recipe_, ProgramKind::train, options));
  return std::make_shared<const Compiled>(std::move(all));
}

Status Session::open_device(const Mesh& mesh) {
  if (options_.rendezvous != nullptr) table_ = std::make_unique<run::RendezvousTable>(*options_.rendezvous);
  TENON_TRY(device_, RankDevice::open(plugins_, options_.id, mesh, table_ ? table_->table() : nullptr,
                                      options_.timeout_ns));
  return device_->allocate(memory().spaces);
}

Status Session::feed(const Program& program, const Fill& fill) {
  const std::vector<TokenRange> ranges = tokens_of(program, options_.id.rank);
  for (int64_t mb = 0; mb < program.microbatches; ++mb) {
    std::map<std::string, char*> inputs;
    for (const auto& [name, operand] : program.inputs[static_cast<size_t>(mb)])
      inputs[name] = device_->address(program, operand);
    TENON_CHECK(fill(slice_batch(program, options_.id.rank, mb), ranges, inputs));
    *reinterpret_cast<int64_t*>(inputs.at("step")) = steps_done_ + 1;
  }
  return {};
}

// Samples of the data, by their numbers.
Session::Fill Session::from_data(std::vector<int64_t> batch) {
  return [this, batch = std::move(batch)](const BatchSlice& slice, const auto& ranges, const auto& inputs) {
    const auto first = batch.begin() + slice.first;
    return feeder_->fill({first, first + slice.count}, ranges, inputs);
  };
}

double Session::read(const Program& program, const std::string& output) const {
  const Operand& operand = program.outputs.at(output);
  const char* at = device_->address(program, operand);
  if (operand.dtype == Dtype::i64) return static_cast<double>(*reinterpret_cast<const int64_t*>(at));
  return *reinterpret_cast<const double*>(at);
}

namespace {

Error no_number(const std::string& what) {
  return Error{"N001", what, "",
               "lower the learning rate, or clip gradients; resume from the last checkpoint", TENON_E_STATE};
}

// It is told of a rank that saw it itself, so this is none of its own (run/cause.h).
Error spoilt_elsewhere(int64_t step) {
  return Error{
      "N002",
      fmt::format("step {}: another rank's loss or update is no number, or it left out a statistic", step),
      "", "see the other rank's error", TENON_E_ABORTED};
}

// Where a value is not from `least` to below `limit`.
Status check_range(const char* field, const int32_t* values, int64_t count, int64_t least, int64_t limit) {
  const int32_t* const end = values + count;
  const int32_t* const bad = std::find_if(values, end, [&](int32_t v) { return v < least || v >= limit; });
  if (bad == end) return {};
  return Error{"A010",
               fmt::format("{}[{}] of the batch is {}, and may be {} to {}", field, bad - values, *bad, least,
                           limit - 1),
               "", "", TENON_E_ARGUMENT};
}

}  // namespace

Result<StepResult> Session::step(InstrTimes* times) {
  std::vector<int64_t> batch;
  for (int64_t i = 0; i < recipe_.batch; ++i) batch.push_back(sampler_->train(samples_seen_ + i));
  TENON_TRY(const StepResult done, take_step(from_data(std::move(batch)), times));
  samples_seen_ += recipe_.batch;
  return done;
}

Status Session::check(const GivenBatch& batch) const {
  const int64_t count = recipe_.batch * recipe_.context;
  TENON_CHECK(check_range("tokens", batch.tokens, count, 0, limits_.tokens));
  return check_range("targets", batch.targets, count, -1, limits_.targets);
}

Result<StepResult> Session::step_on(const GivenBatch& batch) {
  const auto fill = [&](const BatchSlice& slice, const auto& ranges, const auto& inputs) -> Status {
    fill_given(batch, slice, recipe_.context, ranges, inputs);
    return {};
  };
  return take_step(fill, nullptr);
}

// The first that is done here, and those behind which is saved or evaluated: what plugins do is looked at
// where it costs little beside what is done anyway.
bool Session::is_watched(int64_t step) const {
  return !has_stepped_ || due(recipe_.save_every, step, recipe_.steps) ||
         due(recipe_.eval_every, step, recipe_.steps);
}

void Session::spoil_used_arena(const Program& program) {
  if (used_arena_) device_->spoil_arena(program.space_bytes[static_cast<size_t>(Space::arena)]);
  used_arena_ = true;
}

Status Session::judge(const StepResult& step, bool watched) {
  Status number;
  if (!std::isfinite(step.loss) || !std::isfinite(step.grad_norm))
    number =
        no_number(fmt::format("step {}: loss {}, gradient norm {}", step.step, step.loss, step.grad_norm));
  return watched ? judge_together(step, number) : number;
}

// All ranks leave with an error where one does: `number` says whether this one's loss and norm are numbers.
// A rule may leave alone what it likes, all of one rank's too, but hardly all that is trained.
Status Session::judge_together(const StepResult& step, const Status& number) {
  const Executor::Seen mine = train_executor_->seen(step.step);
  const auto words = seen_->words();
  words[0] = mine.must_move ? 1 : 0;
  words[1] = mine.moved ? 1 : 0;
  words[2] = number.ok() && mine.found.ok() ? 0 : 1;
  TENON_CHECK(seen_->add_up(fmt::format("updates of step {}", step.step)));
  TENON_CHECK(number);
  if (words[2] > 0) return mine.found.ok() ? spoilt_elsewhere(step.step) : mine.found;
  if (words[0] == 0 || words[1] > 0) return {};
  Error nothing = nothing_moved(step.step, step.lr);
  nothing.place = fmt::format("{}, {}", plugins_.optimizer.id, nothing.place);
  return nothing;
}

Result<StepResult> Session::take_step(const Fill& fill, InstrTimes* times) {
  const ThreadPool::Use use(*pool_);
  const Program& program = train_program();
  StepResult out;
  out.step = steps_done_ + 1;
  const bool watched = is_watched(out.step);
  if (watched) spoil_used_arena(program);
  const double start = seconds_now();
  TENON_CHECK(feed(program, fill));
  out.lr = lr_.value_or(recipe_.lr.at(out.step));
  out.at_once = overlap_.at_once();
  const auto waits = out.at_once ? Executor::Waits::at_once : Executor::Waits::planned;
  TENON_CHECK(watched ? train_executor_->run_watched(out.step, out.lr, waits, times)
                      : train_executor_->run(out.step, out.lr, waits, times));
  overlap_.add(train_executor_->transfer_seconds());
  const double count = read(program, "count");
  out.tokens = static_cast<int64_t>(count);
  out.loss = count > 0 ? read(program, "loss") / count : 0;
  out.grad_norm = read(program, "norm");
  TENON_CHECK(judge(out, watched));
  has_stepped_ = true;
  steps_done_ = out.step;
  out.seconds = seconds_now() - start;
  return out;
}

Result<EvalResult> Session::evaluate() {
  const ThreadPool::Use use(*pool_);
  const Program& program = mine(programs_->eval);
  if (sampler_->num_valid() == 0) return nothing_held_out();
  spoil_used_arena(program);
  double loss = 0, count = 0;
  const int64_t whole = (sampler_->num_valid() + recipe_.batch - 1) / recipe_.batch;
  const int64_t batches = recipe_.eval_batches == 0 ? whole : std::min(recipe_.eval_batches, whole);
  for (int64_t b = 0; b < batches; ++b) {
    std::vector<int64_t> batch;
    for (int64_t i = 0; i < recipe_.batch; ++i) batch.push_back(sampler_->valid(b * recipe_.batch + i));
    TENON_CHECK(feed(program, from_data(std::move(batch))));
    TENON_CHECK(eval_executor_->run(steps_done_, 0));
    loss += read(program, "loss");
    count += read(program, "count");
  }
  const double mean = count > 0 ? loss / count : 0;
  if (!std::isfinite(mean))
    return no_number(fmt::format("validation behind step {}: loss {}", steps_done_, mean));
  return EvalResult{mean, static_cast<int64_t>(count)};
}

Result<std::vector<double>> Session::logits(const std::vector<int32_t>& tokens) {
  const ThreadPool::Use use(*pool_);
  const Program& program = mine(programs_->logits);
  if (!logits_executor_) {
    TENON_TRY(logits_executor_, Executor::prepare(program, *device_, recipe_.exact));
  }
  const auto context = static_cast<size_t>(recipe_.context);
  if (tokens.empty() || tokens.size() > context) {
    return Error{"D005", fmt::format("{} tokens, where 1 to {} fit", tokens.size(), context), "", "",
                 TENON_E_ARGUMENT};
  }
  spoil_used_arena(program);
  const std::vector<TokenRange> ranges = tokens_of(program, options_.id.rank);
  const auto& inputs = program.inputs[0];
  auto* ids = reinterpret_cast<int32_t*>(device_->address(program, inputs.at("tokens")));
  auto* targets = reinterpret_cast<int32_t*>(device_->address(program, inputs.at("targets")));
  auto* positions = reinterpret_cast<int32_t*>(device_->address(program, inputs.at("positions")));
  *reinterpret_cast<int64_t*>(device_->address(program, inputs.at("samples"))) = -1;  // none of the data
  *reinterpret_cast<int64_t*>(device_->address(program, inputs.at("step"))) = steps_done_ + 1;
  for (const TokenRange& range : ranges) {
    for (int64_t at = range.first; at < range.first + range.count; ++at) {
      const auto i = static_cast<size_t>(at);
      *ids++ = i < tokens.size() ? tokens[i] : 0;
      *targets++ = -1;
      *positions++ = static_cast<int32_t>(at);
    }
  }
  TENON_CHECK(logits_executor_->run(steps_done_, 0));
  const Operand& out = program.outputs.at("logits");
  const int64_t vocab = out.dims.back();
  // Logits are gathered over the ranks that share a sequence: in the order in which they hold it.
  const int64_t row = gathered_position(program, static_cast<int64_t>(tokens.size()) - 1);
  const char* at = device_->address(program, out);
  std::vector<double> logits;
  for (int64_t v = 0; v < vocab; ++v) {
    logits.push_back(out.dtype == Dtype::f64 ? reinterpret_cast<const double*>(at)[row * vocab + v]
                                             : reinterpret_cast<const float*>(at)[row * vocab + v]);
    if (std::isnan(logits.back())) return no_number(fmt::format("the logit of token {} is NaN", v));
  }
  return logits;
}

void Session::abort() {
  if (device_) device_->abort();
}

}  // namespace tenon
