// Kernels one by one: their operands made up, the caches emptied by the probe before each call.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bench/bench.h"
#include "bench/one_rank.h"
#include "bench/probes.h"
#include "bench/work.h"
#include "plan/program/bucket_kernels.h"

namespace tenon::bench {
namespace {

struct Case {
  Instr instr;
  Work work;
  int64_t calls = 0;  // of a step
};

std::vector<Case> cases_of(const Program& program) {
  std::vector<Case> out;
  std::map<std::string, size_t> known;
  for (const Instr& instr : program.instrs) {
    if (instr.lane != 0) continue;
    std::vector<Instr> storage;
    for (const Instr& kernel : kernels_of(program, instr, 0, storage)) {
      Work work = work_of(kernel);
      if (kernel.inplace >= 0) work.name += " in place";
      const auto [entry, fresh] = known.try_emplace(work.name, out.size());
      if (fresh) out.push_back({kernel, std::move(work), 0});
      ++out[entry->second].calls;
    }
  }
  return out;
}

// How many values an operand of indices chooses among: rows of a table, tokens of a vocabulary, or positions.
int64_t choices(const Instr& instr, const Operand& operand) {
  if (const auto vocabulary = size_of_letter(instr, "v")) return *vocabulary;
  return std::max<int64_t>(operand.dims.empty() ? 0 : operand.dims.back(), 1);
}

// Experts and slots such that no two choices share one; whose expert has no slot left gets none.
struct Routing {
  int64_t group = 1, experts = 1, capacity = 1;

  static std::optional<Routing> of(const Instr& instr) {
    if (!instr.attrs.contains("group")) return std::nullopt;
    const auto of_letter = [&](const char* letter, const char* attr) {
      return std::max<int64_t>(size_of_letter(instr, letter).value_or(attr_int(instr.attrs, attr)), 1);
    };
    return Routing{attr_int(instr.attrs, "group"), of_letter("e", "experts"), of_letter("c", "capacity")};
  }
  // Choice `i` of an operand [b s k].
  int64_t expert(int64_t i, int64_t k) const { return wanted(i, k) % experts; }
  int64_t slot(int64_t i, int64_t k) const { return wanted(i, k) < experts ? i / k % group % capacity : -1; }
  int64_t wanted(int64_t i, int64_t k) const { return i / k % group / capacity * k + i % k; }
};

// `nth`: of the operands that hold indices.
int32_t made_up(const Instr& instr, const Operand& operand, size_t nth, int64_t i) {
  const auto routing = Routing::of(instr);
  if (!routing) return static_cast<int32_t>(i % choices(instr, operand));
  const int64_t k = operand.dims.back();
  return static_cast<int32_t>(nth == 0 ? routing->expert(i, k) : routing->slot(i, k));
}

void fill(const Instr& instr, size_t input, char* at) {
  const Operand& operand = instr.in[input];
  const int64_t n = operand.elements();
  if (operand.dtype == Dtype::f32) fill_real(reinterpret_cast<float*>(at), n, -0.5, 0.5);
  if (operand.dtype == Dtype::f64) fill_real(reinterpret_cast<double*>(at), n, -0.5, 0.5);
  if (operand.dtype == Dtype::i64)
    std::iota(reinterpret_cast<int64_t*>(at), reinterpret_cast<int64_t*>(at) + n, 1);
  if (operand.dtype != Dtype::i32) return;
  const auto before = instr.in.begin() + static_cast<std::ptrdiff_t>(input);
  const auto nth =
      static_cast<size_t>(std::ranges::count(instr.in.begin(), before, Dtype::i32, &Operand::dtype));
  for (int64_t i = 0; i < n; ++i) reinterpret_cast<int32_t*>(at)[i] = made_up(instr, operand, nth, i);
}

// A kernel with operands of its own.
class Bench {
 public:
  static Result<std::unique_ptr<Bench>> prepare(RankDevice& device, const Instr& instr, bool exact) {
    const KernelRunner runner = device.runner_of(instr.kind);
    const auto& plugin = *runner.plugin;
    std::unique_ptr<Bench> out(new Bench(plugin));
    const KernelDesc desc(instr, exact);
    TENON_TRY(const KernelNeeds needs, describe(plugin, desc.get()));
    TENON_TRY(out->kernel_,
              open_handle<tenon_kernel>(plugin.id, plugin.table->release, [&](auto** o, auto* e) {
                return plugin.table->prepare(runner.device, &desc.get(), o, e);
              }));
    for (size_t i = 0; i < instr.in.size(); ++i) {
      TENON_TRY(char* at, out->add(device, instr.in[i].bytes()));
      fill(instr, i, at);
    }
    for (size_t i = 0; i < instr.out.size(); ++i) {
      const bool shared = i == 0 && instr.inplace >= 0;
      if (shared)
        out->pointers_.push_back(out->pointers_[static_cast<size_t>(instr.inplace)]);
      else
        TENON_CHECK(out->add(device, instr.out[i].bytes()));
    }
    if (needs.workspace_bytes > 0)
      TENON_CHECK(out->add(device, needs.workspace_bytes));
    else
      out->pointers_.push_back(nullptr);
    return out;
  }

  Result<double> seconds() {
    const tenon_stream stream{{kDLCPU, 0}, nullptr};
    tenon_error error = empty_abi_error();
    const double start = seconds_now();
    const tenon_code code = plugin_.table->enqueue(kernel_.get(), &stream, pointers_.data(), &error);
    if (code < 0) return from_abi(code, error, plugin_.id);
    return seconds_now() - start;
  }

 private:
  explicit Bench(const Plugged<tenon_kernels>& plugin) : plugin_(plugin) {}
  Result<char*> add(RankDevice& device, uint64_t bytes) {
    TENON_TRY(auto memory, device.memory(bytes));
    pointers_.push_back(memory.get());
    memory_.push_back(std::move(memory));
    return static_cast<char*>(pointers_.back());
  }

  const Plugged<tenon_kernels>& plugin_;
  Handle<tenon_kernel> kernel_;
  std::vector<Handle<void>> memory_;
  std::vector<void*> pointers_;
};

Result<Json> measure_case(RankDevice& device, const Case& one, bool exact, int rounds, Probe& probe) {
  TENON_TRY(const auto bench, Bench::prepare(device, one.instr, exact));
  TENON_CHECK(bench->seconds());  // touches its memory
  std::vector<double> seconds;
  probe.clear();
  for (int round = 0; round < rounds; ++round) {
    probe.sample();
    TENON_TRY(const double taken, bench->seconds());
    seconds.push_back(taken);
  }
  const Work& work = one.work;
  const Rates rates = probe.rates();
  const double time = median(seconds), floor = rates.seconds(work.flops, work.bytes);
  return Json{{"op", one.instr.kind},
              {"name", work.name},
              {"plugin", device.plugins().kernels.of(one.instr.kind).id},
              {"calls", one.calls},
              {"seconds", time},
              {"flops_per_s", work.flops / time},
              {"bytes_per_s", work.bytes / time},
              {"floor_seconds", floor},
              {"of_floor", floor / time},
              {"probe_flops_per_s", rates.flops},
              {"probe_bytes_per_s", rates.bytes}};
}

}  // namespace

Result<Json> measure_kernels(const Recipe& recipe, const PluginSet& plugins, const Settings& settings) {
  TENON_TRY(const auto rank, OneRank::open(recipe, plugins, settings.threads));
  const ThreadPool::Use use(rank->pool());
  Probe probe(rank->pool(), peak_loops(isa_of(plugins.kernels.base().options)));
  Json rows = Json::array();
  for (const Case& one : cases_of(rank->program())) {
    TENON_TRY(Json row, measure_case(rank->device(), one, recipe.exact, settings.rounds, probe));
    rows.push_back(std::move(row));
  }
  const auto lost = [](const Json& row) {
    return row["calls"].get<double>() * (row["seconds"].get<double>() - row["floor_seconds"].get<double>());
  };
  std::stable_sort(rows.begin(), rows.end(), [&](const Json& a, const Json& b) { return lost(a) > lost(b); });
  return Json{{"recipe", recipe.name},
              {"plugin", plugins.kernels.base().id},
              {"threads", settings.threads},
              {"rounds", settings.rounds},
              {"rows", std::move(rows)}};
}

}  // namespace tenon::bench
