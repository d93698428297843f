#include "virtual_run.hpp"

#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "run/cause.h"
#include "run/rendezvous/memory_rendezvous.h"

namespace tenon::test {

namespace {

// Puts tensors together from the ranks' parts.
class Assembly {
 public:
  // `data`: elements [first, first + count) of the tensor local to a rank.
  void add(const std::string& name, Bytes& whole, const TensorInfo& tensor, const Mesh& mesh, int64_t rank,
           const char* data, int64_t first, int64_t count) {
    const std::lock_guard lock(mutex_);
    const auto size = static_cast<size_t>(size_of(tensor.operand.dtype));
    const auto elements = static_cast<size_t>(tenon::elements(tensor.dims));
    whole.resize(elements * size);
    std::vector<bool>& known = known_[&whole];
    known.resize(elements);
    const auto at = mesh.coordinate(rank);
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = first + i, global = 0, stride = 1;
      for (size_t d = tensor.dims.size(); d-- > 0;) {
        const int64_t local = tensor.operand.dims[d];
        global += (index_on(mesh, at, tensor.placement.dims[d]) * local + rest % local) * stride;
        rest /= local;
        stride *= tensor.dims[d].size;
      }
      char* to = whole.data() + static_cast<size_t>(global) * size;
      const char* from = data + static_cast<size_t>(i) * size;
      if (known[static_cast<size_t>(global)] && std::memcmp(to, from, size) != 0) {
        disagreements_.insert(name + " on rank " + std::to_string(rank));
      }
      known[static_cast<size_t>(global)] = true;
      std::memcpy(to, from, size);
    }
  }
  std::vector<std::string> disagreements() const { return {disagreements_.begin(), disagreements_.end()}; }

 private:
  std::mutex mutex_;
  std::map<const Bytes*, std::vector<bool>> known_;
  std::set<std::string> disagreements_;
};

}  // namespace

RegistryConfig test_registry() {
  RegistryConfig config;
  config.directories = {TENON_PLUGIN_DIR};
  config.default_directories = false;
  return config;
}

Bytes copy_of(const Session& session, const TensorInfo& tensor) {
  const char* at = session.tensors().data(tensor);
  return Bytes(at, at + tensor.operand.bytes());
}

Result<RunRecord> run_virtual(const Json& document, const RunOptions& options) {
  PluginRegistry registry(test_registry());
  TENON_TRY(const Recipe recipe, read_recipe(document));
  TENON_TRY(PluginSet plugins, load_plugins(registry, recipe));
  if (options.change_plugins) options.change_plugins(plugins);
  std::shared_ptr<const Programs> programs = options.programs;
  if (programs == nullptr) {
    TENON_TRY(programs, compile_programs(recipe, plugins, options.ranks, true));
  }
  run::MemoryRendezvous rendezvous;
  RunRecord record;
  std::vector<Status> outcomes(static_cast<size_t>(options.ranks));
  record.steps.reserve(static_cast<size_t>(options.steps));  // records stay where they are
  Assembly assembly;
  std::mutex mutex;
  int64_t first_step = 0;
  const auto entry = [&](std::map<std::string, Bytes>& tensors, const std::string& name) -> Bytes& {
    const std::lock_guard lock(mutex);
    return tensors[name];
  };
  const auto record_of = [&](size_t index, const StepResult& result) -> StepRecord& {
    const std::lock_guard lock(mutex);
    if (record.steps.size() <= index) record.steps.resize(index + 1);
    record.steps[index].result = result;
    return record.steps[index];
  };
  const auto rank_main = [&](int rank) -> Status {
    SessionOptions session_options;
    session_options.id = {rank, options.ranks};
    session_options.rendezvous = options.ranks > 1 ? &rendezvous : nullptr;
    session_options.root = options.root;
    session_options.threads = options.threads;
    session_options.programs = programs;
    session_options.timeout_ns = 60'000'000'000;
    TENON_TRY(const auto session, Session::open(recipe, plugins, session_options));
    if (options.before) TENON_CHECK(options.before(*session));
    {
      const std::lock_guard lock(mutex);
      first_step = session->steps_done() + 1;
    }
    while (session->steps_done() < options.steps) {
      TENON_TRY(const StepResult result, session->step());
      StepRecord& step = record_of(static_cast<size_t>(result.step - first_step), result);
      for (const TensorInfo& param : session->tensors().params()) {
        if (param.copy) continue;
        const auto part = gradient_of(session->train_program(), session->device(), param.name);
        assembly.add("gradient of " + param.name, entry(step.gradients, param.name), param,
                     session->device().mesh(), rank, part.data, part.first, part.count);
      }
      if (options.each_step && !options.each_step(*session, result)) break;
    }
    if (options.after) TENON_CHECK(options.after(*session));
    for (const auto* list : {&session->tensors().params(), &session->tensors().states()}) {
      for (const TensorInfo& tensor : *list) {
        const Held part = session->tensors().held(tensor);
        Bytes& whole = entry(record.tensors, tensor.name);
        assembly.add(tensor.name, whole, tensor, session->device().mesh(), rank,
                     session->tensors().data(tensor), part.first, part.count);
        const std::lock_guard lock(mutex);
        record.dtypes[tensor.name] = tensor.operand.dtype;
      }
    }
    return {};
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < options.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      outcomes[static_cast<size_t>(rank)] = rank_main(rank);
      if (!outcomes[static_cast<size_t>(rank)].ok())
        rendezvous.abort("rank " + std::to_string(rank) + " failed");
    });
  }
  outcomes[0] = rank_main(0);
  if (!outcomes[0].ok()) rendezvous.abort("rank 0 failed");
  for (std::thread& thread : threads) thread.join();
  Cause cause;
  for (int rank = 0; rank < options.ranks; ++rank) {
    if (const Status& outcome = outcomes[static_cast<size_t>(rank)]; !outcome.ok())
      cause.hear(rank, outcome.error());
  }
  if (cause.error()) return *cause.error();
  record.disagreements = assembly.disagreements();
  return record;
}

std::vector<double> as_doubles(const Bytes& bytes, Dtype dtype) {
  std::vector<double> out;
  const size_t n = bytes.size() / static_cast<size_t>(size_of(dtype));
  for (size_t i = 0; i < n; ++i) {
    if (dtype == Dtype::f64) {
      double v;
      std::memcpy(&v, bytes.data() + i * 8, 8);
      out.push_back(v);
    } else {
      float v;
      std::memcpy(&v, bytes.data() + i * 4, 4);
      out.push_back(v);
    }
  }
  return out;
}

}  // namespace tenon::test
