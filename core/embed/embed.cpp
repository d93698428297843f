// The exported functions of libtenon.so: they check what comes in, turn results into codes, and let no
// exception out. The work is in context.cpp and run.cpp.
#include "tenon/embed.h"

#include <fenv.h>
#include <pthread.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>

#include "base/json.h"
#include "embed/context.h"
#include "embed/host_tensor.h"
#include "embed/run.h"
#include "host/plugins/process_state.h"

struct tenon_context {
  explicit tenon_context(const tenon_options& options) : it(options) {}
  tenon::embed::Context it;
};

struct tenon_run {
  std::unique_ptr<tenon::embed::Run> it;
  mutable std::atomic<bool> busy{false};  // in a call
};

namespace tenon::embed {
namespace {

Error bad_argument(const std::string& cause, const std::string& fix = "") {
  return Error{"A010", cause, "", fix, TENON_E_ARGUMENT};
}

// Opening evaluates, compiles and proves on the caller's thread. What is left of its stack is asked of the
// system; of a stack that is none of its own (a coroutine's) nothing is known.
Status check_stack() {
  constexpr size_t kNeeded = size_t{192} << 10;  // small models need 80
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
  void* low = nullptr;
  size_t size = 0;
  const bool known = pthread_attr_getstack(&attributes, &low, &size) == 0;
  pthread_attr_destroy(&attributes);
  const auto here = reinterpret_cast<uintptr_t>(&attributes), begin = reinterpret_cast<uintptr_t>(low);
  if (!known || here < begin || here >= begin + size || here - begin >= kNeeded) return {};
  return Error{"E029",
               "the calling thread has " + std::to_string((here - begin) >> 10) + " KiB of stack left, and " +
                   std::to_string(kNeeded >> 10) + " KiB are needed",
               "", "call from a thread with a larger stack", TENON_E_MEMORY};
}

// What a call needs not to be NULL.
struct Needed {
  const char* name;
  const void* pointer;
};

Status need(const char* function, std::initializer_list<Needed> all) {
  for (const Needed& one : all) {
    if (one.pointer == nullptr) return bad_argument(std::string(function) + ": '" + one.name + "' is NULL");
  }
  return {};
}

// A program of any minor has its own size, but none is so small that no field fits, and none is large: that
// is a struct_size which nobody has set.
template <class T>
Status check_size(const char* type, const T* given) {
  constexpr uint32_t kLeast = 2 * sizeof(uint32_t), kMost = 4096;
  if (given == nullptr || (given->struct_size >= kLeast && given->struct_size <= kMost)) return {};
  return bad_argument(std::string(type) + ".struct_size is " + std::to_string(given->struct_size),
                      "set it to sizeof(" + std::string(type) + ") before the call");
}

// The caller's struct as ours: zero behind what it knows, cut to what we know.
template <class T>
T copy_in(const T* given) {
  T out{};
  out.struct_size = sizeof out;
  tenon_fill(&out, given);
  return out;
}

// Ours into the caller's.
template <class T>
void copy_out(T ours, T* out) {
  ours.struct_size = sizeof ours;
  tenon_fill(out, &ours);
}

tenon_code plain_failure(tenon_code code, const char* text, tenon_error* error) {
  tenon_error mine = empty_abi_error();
  mine.code = code;
  std::strncpy(mine.message, text, sizeof(mine.message) - 1);
  tenon_fill(error, &mine);
  return code;
}

// Numbers in recipes and checkpoints are read alike, however the caller rounds.
class DefaultFloats {
 public:
  DefaultFloats() {
    fegetenv(&before_);
    fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloats() { fesetenv(&before_); }
  DefaultFloats(const DefaultFloats&) = delete;
  DefaultFloats& operator=(const DefaultFloats&) = delete;

 private:
  fenv_t before_;
};

// `call` gives Result<tenon_code>. `log` may be NULL. Of an error nobody has set the size of nothing can be
// written: the call is not begun, and only the log says why.
template <class Call>
tenon_code guarded(const std::shared_ptr<LogQueue>& log, tenon_error* error, const Call& call) noexcept {
  const DefaultFloats floats;
  try {
    if (const Status sized = check_size("tenon_error", error); !sized.ok()) {
      if (log == nullptr) return TENON_E_ARGUMENT;
      log->push(TENON_LOG_ERROR, "libtenon", 0, sized.error().text());
      log->deliver();
      return TENON_E_ARGUMENT;
    }
    const Result<tenon_code> result = call();
    tenon_code code = result.ok() ? *result : to_abi(result.error(), error);
    if (log == nullptr) return code;
    if (!result.ok()) {
      const std::string text = result.error().text();
      if (text.size() >= sizeof(tenon_error::message)) log->push(TENON_LOG_ERROR, "libtenon", 0, text);
    }
    log->deliver();
    return code;
  } catch (const std::bad_alloc&) {
    return plain_failure(TENON_E_MEMORY, "error[E010]: out of memory", error);
  } catch (const std::exception& e) {
    return plain_failure(TENON_E_INTERNAL, e.what(), error);
  } catch (...) {
    return plain_failure(TENON_E_INTERNAL, "an exception of unknown type", error);
  }
}

std::shared_ptr<LogQueue> log_of(const tenon_context* context) {
  return context == nullptr ? nullptr : context->it.shared_log();
}
std::shared_ptr<LogQueue> log_of(const tenon_run* run) {
  return run == nullptr ? nullptr : run->it->context().shared_log();
}

// Whether this call may begin, which is the only one on the run until leave().
bool enter(const tenon_run* run) {
  return run == nullptr || !run->busy.exchange(true, std::memory_order_acquire);
}
void leave(const tenon_run* run) {
  if (run != nullptr) run->busy.store(false, std::memory_order_release);
}

// The log is that of the call which has not ended.
tenon_code not_alone(const char* function, tenon_error* error) noexcept {
  return guarded(nullptr, error, [&]() -> Result<tenon_code> {
    return Error{"E028", std::string(function) + ": another call on this run has not ended", "",
                 "serialise the calls on a run", TENON_E_STATE};
  });
}

// A call on a run, which one thread makes at a time. `call` gives Result<tenon_code>.
template <class Call>
tenon_code guarded_run(const tenon_run* run, const char* function, tenon_error* error,
                       const Call& call) noexcept {
  if (!enter(run)) return not_alone(function, error);
  const tenon_code code = guarded(log_of(run), error, [&]() -> Result<tenon_code> {
    TENON_CHECK(need(function, {{"run", run}}));
    return call();
  });
  leave(run);
  return code;
}

Result<std::string> absolute_root(const tenon_run_options& options, const std::filesystem::path& otherwise) {
  std::filesystem::path root =
      options.data_root != nullptr ? std::filesystem::path(options.data_root) : otherwise;
  if (root.empty()) root = ".";
  std::error_code failed;
  root = std::filesystem::absolute(root, failed);
  if (failed) return Error{"E011", "cannot find the current folder: " + failed.message(), "", "", TENON_E_IO};
  return root.string();
}

// A recipe that is evaluated, and how it is to be opened or checked.
struct Evaluated {
  ResolvedRecipe resolved;
  std::string root;  // of relative data paths
  tenon_run_options options{};
};

Result<Evaluated> evaluate_file(const char* function, tenon_context* context, const char* recipe,
                                const char* const* overrides, uint32_t num_overrides,
                                const tenon_run_options* options) {
  TENON_CHECK(need(function, {{"context", context}, {"recipe", recipe}}));
  TENON_CHECK(check_size("tenon_run_options", options));
  TENON_CHECK(check_stack());
  if (num_overrides > 0) TENON_CHECK(need(function, {{"overrides", overrides}}));
  std::vector<std::string> texts;
  for (uint32_t i = 0; i < num_overrides; ++i) {
    TENON_CHECK(need(function, {{"overrides[]", overrides[i]}}));
    texts.emplace_back(overrides[i]);
  }
  Evaluated out;
  out.options = copy_in(options);
  TENON_TRY(out.root, absolute_root(out.options, std::filesystem::path(recipe).parent_path()));
  TENON_TRY(const RecipeRequest request, context->it.request(recipe, std::move(texts)));
  TENON_TRY(out.resolved, evaluate_recipe(request));
  return out;
}

Result<Evaluated> evaluate_text(const char* function, tenon_context* context, const char* text, uint64_t size,
                                const tenon_run_options* options) {
  TENON_CHECK(need(function, {{"context", context}, {"text", text}}));
  TENON_CHECK(check_size("tenon_run_options", options));
  TENON_CHECK(check_stack());
  Evaluated out;
  out.options = copy_in(options);
  TENON_TRY(out.root, absolute_root(out.options, {}));
  TENON_TRY(out.resolved.recipe, parse_json(std::string(text, size), "resolved recipe"));
  return out;
}

void log_messages(tenon_context* context, const Evaluated& recipe) {
  const std::string& messages = recipe.resolved.messages;
  if (!messages.empty()) context->it.registry().host().log(TENON_LOG_INFO, "recipe", 0, messages);
}

// Opening and checking are what loads foreign code: its handlers go.
Result<tenon_code> open_run(tenon_context* context, Evaluated recipe, tenon_run** out) {
  const ProcessStateGuard guard;
  log_messages(context, recipe);
  auto handle = std::make_unique<tenon_run>();
  TENON_TRY(handle->it, Run::open(context->it, std::move(recipe.resolved), recipe.root, recipe.options));
  ++context->it.open_runs;
  *out = handle.release();
  return TENON_OK;
}

Result<tenon_code> check_run(tenon_context* context, Evaluated recipe, tenon_check_result* result) {
  const ProcessStateGuard guard;
  log_messages(context, recipe);
  TENON_TRY(const tenon_check_result found,
            Run::check(context->it, std::move(recipe.resolved), recipe.root, recipe.options));
  copy_out(found, result);
  return TENON_OK;
}

Result<tenon_code> answer_step(const std::optional<StepResult>& done, tenon_step_result* result) {
  if (!done) return TENON_DONE;
  copy_out<tenon_step_result>(
      {0, 0, done->step, done->tokens, done->loss, done->grad_norm, done->lr, done->seconds}, result);
  return TENON_OK;
}

Error wrong_count(const char* field, int64_t given, int64_t wanted) {
  return bad_argument(std::string("tenon_batch.") + field + " is " + std::to_string(given) + ", not " +
                          std::to_string(wanted),
                      "tenon_run_info tells it");
}

}  // namespace
}  // namespace tenon::embed

using namespace tenon;  // NOLINT(google-build-using-namespace): the functions below are all of this file's
                        // use
using namespace tenon::embed;  // NOLINT(google-build-using-namespace)

extern "C" {

const char* tenon_version(void) { return TENON_VERSION; }

tenon_code tenon_open(const tenon_options* options, tenon_context** out, tenon_error* error) {
  return guarded(nullptr, error, [&]() -> Result<tenon_code> {
    TENON_CHECK(need("tenon_open", {{"out", out}}));
    TENON_CHECK(check_size("tenon_options", options));
    const tenon_options given = copy_in(options);
    if (given.num_plugin_directories > 0)
      TENON_CHECK(need("tenon_open", {{"plugin_directories", given.plugin_directories}}));
    for (uint32_t i = 0; i < given.num_plugin_directories; ++i) {
      TENON_CHECK(need("tenon_open", {{"plugin_directories[]", given.plugin_directories[i]}}));
    }
    if (given.threads < 0 || given.threads > ThreadPool::kMostThreads)
      return bad_argument("tenon_options.threads is " + std::to_string(given.threads),
                          "0: choose; at most " + std::to_string(ThreadPool::kMostThreads));
    *out = std::make_unique<tenon_context>(given).release();
    return TENON_OK;
  });
}

tenon_code tenon_close(tenon_context* context, tenon_error* error) {
  return guarded(log_of(context), error, [&]() -> Result<tenon_code> {
    if (context == nullptr) return TENON_OK;
    const int open = context->it.open_runs.load();
    if (open > 0) {
      return Error{"E027",
                   "closing a context with " + std::to_string(open) + " open run" + (open == 1 ? "" : "s"),
                   "", "close its runs first", TENON_E_STATE};
    }
    delete context;
    return TENON_OK;
  });
}

tenon_code tenon_run_open(tenon_context* context, const char* recipe, const char* const* overrides,
                          uint32_t num_overrides, const tenon_run_options* options, tenon_run** out,
                          tenon_error* error) {
  return guarded(log_of(context), error, [&]() -> Result<tenon_code> {
    TENON_CHECK(need("tenon_run_open", {{"out", out}}));
    TENON_TRY(Evaluated evaluated,
              evaluate_file("tenon_run_open", context, recipe, overrides, num_overrides, options));
    return open_run(context, std::move(evaluated), out);
  });
}

tenon_code tenon_run_open_json(tenon_context* context, const char* text, uint64_t size,
                               const tenon_run_options* options, tenon_run** out, tenon_error* error) {
  return guarded(log_of(context), error, [&]() -> Result<tenon_code> {
    TENON_CHECK(need("tenon_run_open_json", {{"out", out}}));
    TENON_TRY(Evaluated evaluated, evaluate_text("tenon_run_open_json", context, text, size, options));
    return open_run(context, std::move(evaluated), out);
  });
}

tenon_code tenon_check(tenon_context* context, const char* recipe, const char* const* overrides,
                       uint32_t num_overrides, const tenon_run_options* options, tenon_check_result* result,
                       tenon_error* error) {
  return guarded(log_of(context), error, [&]() -> Result<tenon_code> {
    TENON_CHECK(check_size("tenon_check_result", result));
    TENON_TRY(Evaluated evaluated,
              evaluate_file("tenon_check", context, recipe, overrides, num_overrides, options));
    return check_run(context, std::move(evaluated), result);
  });
}

tenon_code tenon_check_json(tenon_context* context, const char* text, uint64_t size,
                            const tenon_run_options* options, tenon_check_result* result,
                            tenon_error* error) {
  return guarded(log_of(context), error, [&]() -> Result<tenon_code> {
    TENON_CHECK(check_size("tenon_check_result", result));
    TENON_TRY(Evaluated evaluated, evaluate_text("tenon_check_json", context, text, size, options));
    return check_run(context, std::move(evaluated), result);
  });
}

tenon_code tenon_run_close(tenon_run* run, tenon_error* error) {
  if (run == nullptr) return TENON_OK;
  if (!enter(run)) return not_alone("tenon_run_close", error);
  const tenon_code code = guarded(log_of(run), error, [&]() -> Result<tenon_code> {
    TENON_CHECK(run->it->may_close());
    Context& context = run->it->context();
    delete run;  // with nobody let in before
    --context.open_runs;
    return TENON_OK;
  });
  if (code < 0) leave(run);
  return code;
}

tenon_code tenon_run_step(tenon_run* run, tenon_step_result* result, tenon_error* error) {
  return guarded_run(run, "tenon_run_step", error, [&]() -> Result<tenon_code> {
    TENON_CHECK(check_size("tenon_step_result", result));
    TENON_TRY(const auto done, run->it->step());
    return answer_step(done, result);
  });
}

tenon_code tenon_run_step_on(tenon_run* run, const tenon_batch* batch, tenon_step_result* result,
                             tenon_error* error) {
  return guarded_run(run, "tenon_run_step_on", error, [&]() -> Result<tenon_code> {
    TENON_CHECK(need("tenon_run_step_on", {{"batch", batch}}));
    TENON_CHECK(check_size("tenon_batch", batch));
    TENON_CHECK(check_size("tenon_step_result", result));
    const tenon_batch given = copy_in(batch);
    TENON_CHECK(need("tenon_run_step_on", {{"tokens", given.tokens}, {"targets", given.targets}}));
    const Recipe& recipe = run->it->recipe();
    if (given.samples != recipe.batch) return wrong_count("samples", given.samples, recipe.batch);
    if (given.context != recipe.context) return wrong_count("context", given.context, recipe.context);
    TENON_TRY(const auto done, run->it->step_on({given.tokens, given.targets}));
    return answer_step(done, result);
  });
}

tenon_code tenon_run_set_lr(tenon_run* run, const double* lr, tenon_error* error) {
  return guarded_run(run, "tenon_run_set_lr", error, [&]() -> Result<tenon_code> {
    if (lr != nullptr && !(std::isfinite(*lr) && *lr >= 0))
      return bad_argument("tenon_run_set_lr: the learning rate is " + std::to_string(*lr),
                          "0 or more; NULL: that of the recipe");
    TENON_CHECK(run->it->set_lr(lr == nullptr ? std::optional<double>() : *lr));
    return TENON_OK;
  });
}

// Beside the call that is in progress, and its log.
tenon_code tenon_run_abort(tenon_run* run, tenon_error* error) {
  return guarded(nullptr, error, [&]() -> Result<tenon_code> {
    TENON_CHECK(need("tenon_run_abort", {{"run", run}}));
    run->it->abort();
    return TENON_OK;
  });
}

tenon_code tenon_run_eval(tenon_run* run, tenon_eval_result* result, tenon_error* error) {
  return guarded_run(run, "tenon_run_eval", error, [&]() -> Result<tenon_code> {
    TENON_CHECK(need("tenon_run_eval", {{"result", result}}));
    TENON_CHECK(check_size("tenon_eval_result", result));
    TENON_TRY(const EvalResult eval, run->it->evaluate());
    copy_out<tenon_eval_result>({0, 0, eval.tokens, eval.loss}, result);
    return TENON_OK;
  });
}

tenon_code tenon_run_save(tenon_run* run, const char* directory, tenon_error* error) {
  return guarded_run(run, "tenon_run_save", error, [&]() -> Result<tenon_code> {
    TENON_CHECK(need("tenon_run_save", {{"directory", directory}}));
    TENON_CHECK(run->it->save(directory));
    return TENON_OK;
  });
}

tenon_code tenon_run_resume(tenon_run* run, const char* directory, tenon_error* error) {
  return guarded_run(run, "tenon_run_resume", error, [&]() -> Result<tenon_code> {
    TENON_CHECK(need("tenon_run_resume", {{"directory", directory}}));
    TENON_CHECK(run->it->resume(directory));
    return TENON_OK;
  });
}

tenon_code tenon_run_logits(tenon_run* run, const int32_t* tokens, uint64_t num_tokens, double* out,
                            uint64_t* count, tenon_error* error) {
  return guarded_run(run, "tenon_run_logits", error, [&]() -> Result<tenon_code> {
    TENON_CHECK(need("tenon_run_logits", {{"tokens", tokens}, {"count", count}}));
    TENON_TRY(const auto logits, run->it->logits({tokens, tokens + num_tokens}));
    if (out != nullptr && *count < logits.size()) {
      return bad_argument(std::to_string(logits.size()) + " logits, but room for " + std::to_string(*count),
                          "call with 'out' NULL to ask how many");
    }
    if (out != nullptr) std::memcpy(out, logits.data(), logits.size() * sizeof(double));
    *count = logits.size();
    return TENON_OK;
  });
}

tenon_code tenon_run_info(const tenon_run* run, tenon_info* info, tenon_error* error) {
  return guarded_run(run, "tenon_run_info", error, [&]() -> Result<tenon_code> {
    TENON_CHECK(need("tenon_run_info", {{"info", info}}));
    TENON_CHECK(check_size("tenon_info", info));
    TENON_TRY(const tenon_info found, run->it->info());
    copy_out(found, info);
    return TENON_OK;
  });
}

const char* tenon_run_tensor_name(const tenon_run* run, uint64_t index) {
  if (run == nullptr || index >= run->it->tensors().size()) return nullptr;
  return run->it->tensors()[index].name.c_str();
}

tenon_code tenon_run_tensor(const tenon_run* run, const char* name, tenon_tensor_info* info,
                            tenon_error* error) {
  return guarded_run(run, "tenon_run_tensor", error, [&]() -> Result<tenon_code> {
    TENON_CHECK(need("tenon_run_tensor", {{"name", name}, {"info", info}}));
    TENON_CHECK(check_size("tenon_tensor_info", info));
    TENON_TRY(const WholeTensor* const tensor, run->it->tensor(name));
    tenon_tensor_info found{};
    found.is_state = tensor->is_state ? 1 : 0;
    found.name = tensor->name.c_str();
    found.dims = tensor->dims.data();
    found.ndim = static_cast<int32_t>(tensor->dims.size());
    found.dtype = dl_type(tensor->dtype);
    found.bytes = tensor->bytes();
    copy_out(found, info);
    return TENON_OK;
  });
}

tenon_code tenon_run_read(tenon_run* run, const char* name, const DLTensor* into, tenon_error* error) {
  return guarded_run(run, "tenon_run_read", error, [&]() -> Result<tenon_code> {
    TENON_CHECK(need("tenon_run_read", {{"name", name}, {"into", into}}));
    TENON_CHECK(run->it->read(name, *into));
    return TENON_OK;
  });
}

tenon_code tenon_run_write(tenon_run* run, const char* name, const DLTensor* from, tenon_error* error) {
  return guarded_run(run, "tenon_run_write", error, [&]() -> Result<tenon_code> {
    TENON_CHECK(need("tenon_run_write", {{"name", name}, {"from", from}}));
    TENON_CHECK(run->it->write(name, *from));
    return TENON_OK;
  });
}

tenon_code tenon_run_export(tenon_run* run, const char* name, DLManagedTensorVersioned** out,
                            tenon_error* error) {
  return guarded_run(run, "tenon_run_export", error, [&]() -> Result<tenon_code> {
    TENON_CHECK(need("tenon_run_export", {{"name", name}, {"out", out}}));
    TENON_TRY(*out, run->it->view(name));
    return TENON_OK;
  });
}

}  // extern "C"
