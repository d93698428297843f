#include "run/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"

namespace tenon {
namespace {

Result<std::vector<OptimizerSlots>> optimizer_slots(const OptimizerUse& use, Dtype precision) {
  std::vector<OptimizerSlots> out;
  for (const OptionValues& options : use.groups) {
    TENON_TRY(auto state,
              open_handle<tenon_optimizer_state>(use.id, use.table->close, [&](auto** o, auto* e) {
                return use.table->open(options.data(), options.size(), o, e);
              }));
    tenon_optimizer_info info{};
    info.struct_size = sizeof info;
    tenon_error error = empty_abi_error();
    const tenon_code code = use.table->describe(state.get(), &info, &error);
    if (code < 0) return from_abi(code, error, use.id);
    if (info.num_stats != 0) {
      return Error{"P021",
                   use.id + " needs statistics of whole parameters, which this core does not reduce yet",
                   "/optimizer", "use another optimizer", TENON_E_UNSUPPORTED};
    }
    OptimizerSlots& group = out.emplace_back();
    group.elements = info.granule == TENON_GRANULE_ELEMENT;
    for (uint32_t i = 0; i < info.num_slots; ++i) {
      const uint32_t dtype = info.slots[i].dtype;
      group.slots.push_back(
          {info.slots[i].name, dtype == TENON_SLOT_DTYPE_OF_PARAM ? precision : static_cast<Dtype>(dtype)});
    }
  }
  return out;
}

// Fills the part of a parameter that this rank holds, as the same numbers whatever the placement.
template <class Real>
void fill_part(Init init, uint64_t key, int64_t first, std::span<Real> out) {
  switch (init.kind) {
    case Init::Kind::zeros: std::fill(out.begin(), out.end(), Real{0}); break;
    case Init::Kind::ones: std::fill(out.begin(), out.end(), Real{1}); break;
    case Init::Kind::normal: fill_normal(key, first, out, init.scale); break;
    case Init::Kind::uniform:
      if (init.scale > 0)
        fill_uniform(key, first, out, -init.scale, init.scale);
      else
        std::fill(out.begin(), out.end(), Real{0});
      break;
  }
}

// First index of each dim of the part that a rank computes with of a tensor.
std::vector<int64_t> part_start(const TensorInfo& tensor, const Mesh& mesh, int64_t rank) {
  const auto at = mesh.coordinate(rank);
  std::vector<int64_t> start;
  for (size_t d = 0; d < tensor.dims.size(); ++d)
    start.push_back(index_on(mesh, at, tensor.placement.dims[d]) * tensor.operand.dims[d]);
  return start;
}

// Calls visit(global offset, local offset, count) for each run that is contiguous in both.
template <class Visit>
void each_run(const TensorInfo& tensor, const std::vector<int64_t>& start, Visit visit) {
  const auto& local = tensor.operand.dims;
  const int64_t run = local.empty() ? 1 : local.back();
  const int64_t runs = run == 0 ? 0 : tensor.operand.elements() / run;
  for (int64_t r = 0; r < runs; ++r) {
    int64_t rest = r, stride = local.empty() ? 1 : tensor.dims.back().size;
    int64_t global = local.empty() ? 0 : start.back();
    for (size_t d = local.size() - (local.empty() ? 0 : 1); d-- > 0;) {
      global += (start[d] + rest % local[d]) * stride;
      rest /= local[d];
      stride *= tensor.dims[d].size;
    }
    visit(global, r * run, run);
  }
}

}  // namespace

Result<CompileOptions> compile_options(const Recipe& recipe, const PluginSet& plugins, const Mesh& mesh) {
  CompileOptions out;
  out.mesh = mesh;
  for (const auto& pass : plugins.passes) {
    const size_t i = out.passes.size();
    out.passes.push_back({pass.id,
                          pass.table,
                          {pass.options.data(), pass.options.data() + pass.options.size()},
                          "/strategies/" + std::to_string(i)});
  }
  const auto& schedule = plugins.schedule;
  if (schedule.table != nullptr) {
    out.schedule = {schedule.id,
                    schedule.table,
                    {schedule.options.data(), schedule.options.data() + schedule.options.size()}};
  }
  out.optimizer = plugins.optimizer.id;
  TENON_TRY(out.slots, optimizer_slots(plugins.optimizer, recipe.precision));
  out.tree_order = (plugins.comm.table->flags & TENON_COMM_TREE_ORDER) != 0;
  out.describe = [&kernels = plugins.kernels](const tenon_kernel_desc& desc) -> Result<KernelNeeds> {
    tenon_kernel_info info{};
    info.struct_size = sizeof info;
    tenon_error error = empty_abi_error();
    const tenon_code code = kernels.table->describe(&desc, nullptr, &info, &error);
    if (code < 0) return from_abi(code, error, kernels.id);
    return KernelNeeds{info.workspace_bytes, info.private_bytes, (info.flags & TENON_KERNEL_EXACT) != 0};
  };
  return out;
}

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
  TENON_TRY(const Mesh mesh, resolve_mesh(recipe_.mesh, options_.id.world));
  TENON_TRY(feeder_, Feeder::open(plugins_.data, options_.root, recipe_.context));
  TENON_TRY(sampler_, Sampler::create(feeder_->num_samples(), recipe_.valid, recipe_.seed));
  programs_ = options_.programs;
  if (programs_ == nullptr) {
    TENON_TRY(programs_, compile_programs(recipe_, plugins_, options_.id.world, options_.training));
  }
  TENON_CHECK(check_vocabulary(programs_->eval, feeder_->token_limit()));
  TENON_CHECK(agree("data", feeder_->digest()));
  TENON_CHECK(agree("program", program_hash(programs_->layout())));
  if (options_.rendezvous != nullptr) table_ = std::make_unique<run::RendezvousTable>(*options_.rendezvous);
  TENON_TRY(device_, RankDevice::open(plugins_, options_.id, mesh, table_ ? table_->table() : nullptr,
                                      options_.timeout_ns));
  std::array<uint64_t, kNumSpaces> bytes{};
  for (const Compiled* compiled : {&programs_->layout(), &programs_->eval, &programs_->logits}) {
    for (size_t i = 0; i < kNumSpaces; ++i) bytes[i] = std::max(bytes[i], mine(*compiled).space_bytes[i]);
  }
  TENON_CHECK(device_->allocate(bytes));
  initialise_params();
  if (programs_->train) {
    TENON_TRY(train_executor_, Executor::prepare(mine(*programs_->train), *device_, recipe_.exact));
    trace_.emplace(options_.trace, train_program().instrs.size());
  }
  TENON_TRY(eval_executor_, Executor::prepare(mine(programs_->eval), *device_, recipe_.exact));
  return prepare_control();
}

Result<std::shared_ptr<const Programs>> compile_programs(const Recipe& recipe, const PluginSet& plugins,
                                                         int64_t world, bool training) {
  TENON_TRY(const Mesh mesh, resolve_mesh(recipe.mesh, world));
  TENON_TRY(const CompileOptions options, compile_options(recipe, plugins, mesh));
  const auto out = std::make_shared<Programs>();
  if (training) {
    TENON_TRY(out->train, compile(recipe, ProgramKind::train, options));
  }
  TENON_TRY(out->eval, compile(recipe, ProgramKind::eval, options));
  TENON_TRY(out->logits, compile(recipe, ProgramKind::logits, options));
  return std::shared_ptr<const Programs>(out);
}

Status check_vocabulary(const Compiled& compiled, int64_t limit) {
  for (const Program& program : compiled.programs) {
    for (const Instr& instr : program.instrs) {
      if (!instr.kind.starts_with("embedding") || instr.in[0].name != "tokens") continue;
      const auto param = std::ranges::find(program.params, instr.in[1].name, &TensorInfo::name);
      if (param == program.params.end() || limit <= param->dims[0].size) continue;
      return Error{"D003",
                   fmt::format("the data has tokens up to {}, but '{}' has {} rows", limit - 1, param->name,
                               param->dims[0].size),
                   "/model", fmt::format("set the model's vocabulary to {}", limit), TENON_E_RECIPE};
    }
  }
  return {};
}

Status Session::agree(const std::string& what, const std::string& mine) {
  if (options_.id.world == 1) return {};
  TENON_TRY(const auto all,
            run::all_gather_bytes(*options_.rendezvous, "agree/" + what, static_cast<int>(options_.id.rank),
                                  static_cast<int>(options_.id.world), mine, options_.timeout_ns));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    return Error{"W001",
                 fmt::format("rank {} has another {} than rank 0 ({} and {})", rank, what,
                             all[rank].substr(0, 12), all[0].substr(0, 12)),
                 "", "use the same recipe, data and plugins on all hosts", TENON_E_STATE};
  }
  return {};
}

Status Session::prepare_control() {
  if (options_.id.world == 1) return {};
  std::vector<AxisId> axes(device_->mesh().axes.size());
  std::iota(axes.begin(), axes.end(), 0u);
  TENON_TRY(tenon_comm_group * everyone, device_->group(axes));
  tenon_comm_op op{};
  op.struct_size = sizeof op;
  op.kind = TENON_COMM_ALL_REDUCE;
  op.reduce = TENON_SUM;
  op.dtype = TENON_I64;
  op.src = op.dst = &control_word_;
  op.count = 1;
  op.peer = -1;
  const tenon_comm_op* const ops[] = {&op};
  const auto& comm = plugins_.comm;
  TENON_TRY(control_, open_handle<tenon_comm_plan>(comm.id, comm.table->release, [&](auto** o, auto* e) {
              return comm.table->prepare(everyone, ops, 1, o, e);
            }));
  return {};
}

Result<bool> Session::any(bool mine) {
  if (control_ == nullptr) return mine;
  const ThreadPool::Use use(*pool_);
  control_word_ = mine ? 1 : 0;
  const tenon_stream stream{{kDLCPU, 0}, nullptr};
  tenon_error error = empty_abi_error();
  tenon_code code = plugins_.comm.table->start(control_.get(), &stream, &error);
  if (code >= 0) code = plugins_.comm.table->wait_host(control_.get(), -1, &error);
  if (code < 0)
    return from_abi(code, error, fmt::format("agreement at step {}, rank {}", steps_done_, options_.id.rank));
  return control_word_ > 0;
}

void Session::initialise_params() {
  for (const TensorInfo& param : layout().params) {
    const uint64_t key = key_from(recipe_.seed, "init/" + param.name);
    char* base = data(param);
    const Held part = held(param);
    each_run(param, part_start(param, device_->mesh(), options_.id.rank),
             [&](int64_t global, int64_t local, int64_t n) {
               const int64_t lo = std::max(local, part.first),
                             hi = std::min(local + n, part.first + part.count);
               if (lo >= hi) return;
               global += lo - local;
               local = lo - part.first;
               const auto count = static_cast<size_t>(hi - lo);
               if (param.operand.dtype == Dtype::f64)
                 fill_part<double>(param.init, key, global, {reinterpret_cast<double*>(base) + local, count});
               else
                 fill_part<float>(param.init, key, global, {reinterpret_cast<float*>(base) + local, count});
             });
  }
}

const TensorInfo* Session::find(const std::string& name) const {
  for (const auto* list : {&layout().params, &layout().states}) {
    for (const TensorInfo& tensor : *list) {
      if (tensor.name == name) return &tensor;
    }
  }
  return nullptr;
}

char* Session::data(const TensorInfo& tensor) const {
  const Held part = held(tensor);
  return device_->address(layout(), Operand{part.buffer, part.offset, tensor.operand.dtype, {}, ""});
}

Session::GradientPart Session::gradient(const std::string& param) const {
  const TensorInfo* info = programs_->train ? find(param) : nullptr;
  if (info == nullptr) return {};
  const Program& program = mine(*programs_->train);
  for (const Instr& instr : program.instrs) {
    if (instr.kind != "update" || instr.layout != static_cast<int32_t>(info->layout)) continue;
    const FlatLayout& layout = program.layouts[info->layout];
    const FlatPart mine = part_of(program, layout, layout.depth(), options_.id.rank);
    const LeafPart part = leaf_in(layout.leaves[info->leaf], mine);
    const char* base = device_->address(program, instr.in[0]);
    return {base + part.at * size_of(instr.in[0].dtype), part.first, part.count};
  }
  return {};
}

MemoryReport Session::memory() const {
  MemoryReport out{device_->bytes(Space::param), device_->bytes(Space::state), device_->bytes(Space::input),
                   device_->bytes(Space::arena), 0};
  for (const Compiled* compiled : {&programs_->layout(), &programs_->eval, &programs_->logits})
    out.kernels_private = std::max(out.kernels_private, mine(*compiled).kernel_private_bytes);
  return out;
}

Overlap Session::overlap() const {
  const int64_t planned = steps_here_ - 2;
  if (planned < 1) return {};
  return {transfers_alone_, transfers_exposed_ / static_cast<double>(planned)};
}

int64_t Session::num_parameters() const {
  int64_t out = 0;
  for (const Program& program : programs_->layout().programs) {
    for (const TensorInfo& param : program.params) out += param.copy ? 0 : elements(param.dims);
  }
  return out;
}

int64_t Session::num_tensors() const {
  int64_t out = 0;
  for (const Program& program : programs_->layout().programs)
    out += std::ranges::count(program.params, false, &TensorInfo::copy);
  return out;
}

int64_t Session::ranks_in_process() const {
  return (plugins_.comm.table->flags & TENON_COMM_IN_PROCESS) != 0 ? options_.id.world : 1;
}

Status Session::feed(const Program& program, const std::vector<int64_t>& batch) {
  for (int64_t mb = 0; mb < program.microbatches; ++mb) {
    const BatchSlice slice = slice_batch(program, options_.id.rank, mb);
    std::map<std::string, char*> inputs;
    for (const auto& [name, operand] : program.inputs[static_cast<size_t>(mb)])
      inputs[name] = device_->address(program, operand);
    TENON_CHECK(feeder_->fill({batch.begin() + slice.first, batch.begin() + slice.first + slice.count},
                              tokens_of(program, options_.id.rank), inputs));
    *reinterpret_cast<int64_t*>(inputs.at("step")) = steps_done_ + 1;
  }
  return {};
}

double Session::read(const Program& program, const std::string& output) const {
  const Operand& operand = program.outputs.at(output);
  const char* at = device_->address(program, operand);
  if (operand.dtype == Dtype::i64) return static_cast<double>(*reinterpret_cast<const int64_t*>(at));
  return *reinterpret_cast<const double*>(at);
}

Result<StepResult> Session::step() {
  const ThreadPool::Use use(*pool_);
  const double start = seconds_now();
  const Program& program = mine(*programs_->train);
  std::vector<int64_t> batch;
  for (int64_t i = 0; i < recipe_.batch; ++i)
    batch.push_back(sampler_->train(steps_done_ * recipe_.batch + i));
  TENON_CHECK(feed(program, batch));
  StepResult out;
  out.step = steps_done_ + 1;
  out.lr = recipe_.lr.at(out.step);
  // The first step is not typical: memory is touched for the first time.
  const bool measure = ++steps_here_ == 2 && options_.id.world > 1;
  TENON_CHECK(train_executor_->run(
      out.step, out.lr, measure ? Executor::Waits::at_once : Executor::Waits::planned, trace_->of(out.step)));
  if (measure) {
    transfers_alone_ = train_executor_->transfer_seconds();
    at_once_step_ = out.step;
  }
  if (steps_here_ > 2) transfers_exposed_ += train_executor_->transfer_seconds();
  const double count = read(program, "count");
  out.tokens = static_cast<int64_t>(count);
  out.loss = count > 0 ? read(program, "loss") / count : 0;
  out.grad_norm = read(program, "norm");
  if (!std::isfinite(out.loss) || !std::isfinite(out.grad_norm)) {
    return Error{"N001", fmt::format("step {}: loss {}, gradient norm {}", out.step, out.loss, out.grad_norm),
                 "", "lower the learning rate, or clip gradients; resume from the last checkpoint",
                 TENON_E_STATE};
  }
  steps_done_ = out.step;
  out.seconds = seconds_now() - start;
  return out;
}

Result<EvalResult> Session::evaluate() {
  const ThreadPool::Use use(*pool_);
  const Program& program = mine(programs_->eval);
  if (sampler_->num_valid() == 0) {
    return Error{"D004", "nothing is held out to evaluate on", "/data/valid", "set valid above 0",
                 TENON_E_RECIPE};
  }
  double loss = 0, count = 0;
  const int64_t whole = (sampler_->num_valid() + recipe_.batch - 1) / recipe_.batch;
  const int64_t batches = recipe_.eval_batches == 0 ? whole : std::min(recipe_.eval_batches, whole);
  for (int64_t b = 0; b < batches; ++b) {
    std::vector<int64_t> batch;
    for (int64_t i = 0; i < recipe_.batch; ++i) batch.push_back(sampler_->valid(b * recipe_.batch + i));
    TENON_CHECK(feed(program, batch));
    TENON_CHECK(eval_executor_->run(steps_done_, 0));
    loss += read(program, "loss");
    count += read(program, "count");
  }
  return EvalResult{count > 0 ? loss / count : 0, static_cast<int64_t>(count)};
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
  const std::vector<TokenRange> ranges = tokens_of(program, options_.id.rank);
  const auto& inputs = program.inputs[0];
  auto* ids = reinterpret_cast<int32_t*>(device_->address(program, inputs.at("tokens")));
  auto* targets = reinterpret_cast<int32_t*>(device_->address(program, inputs.at("targets")));
  auto* positions = reinterpret_cast<int32_t*>(device_->address(program, inputs.at("positions")));
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
  }
  return logits;
}

void Session::abort() {
  if (device_) device_->abort();
}

}  // namespace tenon
