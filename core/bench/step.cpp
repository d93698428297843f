// Whole steps: how long, what of it each kind of op takes, and what the executor itself adds.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/bench.h"
#include "bench/idle.h"
#include "bench/probes.h"
#include "bench/work.h"

namespace tenon::bench {
namespace {

// Of one kind of op on the compute lane, in a step.
struct Kind {
  int64_t calls = 0;
  double floor = 0;             // seconds
  std::vector<double> seconds;  // by traced step
};

class StepBench {
 public:
  static Result<std::unique_ptr<StepBench>> open(const Recipe& recipe, PluginSet& plugins,
                                                 const SessionOptions& options, const Settings& settings) {
    std::unique_ptr<StepBench> out(new StepBench(plugins, options, settings));
    SessionOptions own = options;
    own.threads = settings.threads;
    TENON_TRY(out->pool_, ThreadPool::create(settings.threads));
    out->probe_.emplace(*out->pool_, peak_loops(isa_of(plugins.kernels.base().options)));
    TENON_TRY(out->session_, Session::open(recipe, plugins, own));
    const TraceRange behind{kWarm + settings.rounds + 1, kWarm + 2 * settings.rounds};
    out->trace_.emplace(behind, out->session_->train_program().instrs.size());
    return out;
  }

  // Some steps as they are, then as many traced; the probe and an idle step between them.
  Result<Json> run() {
    for (int i = 0; i < kWarm; ++i) TENON_CHECK(session_->step());
    for (int round = 0; round < 2 * settings_.rounds; ++round) {
      TENON_CHECK(meet());
      probe_->sample();
      probe_->sample_again();  // much of what a kernel reads, the one before has just written
      TENON_CHECK(meet());
      TENON_TRY(const StepResult step, session_->step(trace_->of(session_->steps_done() + 1)));
      if (round < settings_.rounds) steps_.push_back(step.seconds);
      exposed_.push_back(session_->train_executor()->transfer_seconds());
      tokens_ = step.tokens;
      TENON_CHECK(run_idle(step));
    }
    return report();
  }

 private:
  static constexpr int kWarm = 3;  // pages and caches; one waits for transfers at once
  StepBench(PluginSet& plugins, const SessionOptions& options, const Settings& settings)
      : idle_(plugins), options_(options), settings_(settings) {}

  // All ranks load the machine with the same at the same time.
  Status meet() {
    if (options_.id.world == 1) return {};
    return run::barrier(*options_.rendezvous, fmt::format("bench/{}", meetings_++),
                        static_cast<int>(options_.id.rank), static_cast<int>(options_.id.world),
                        options_.timeout_ns);
  }

  Status run_idle(const StepResult& step) {
    TENON_CHECK(meet());
    idle_.set(true);
    Status out;
    for (int i = 0; i < 3 && out.ok(); ++i) {
      const double start = seconds_now();
      out = session_->train_executor()->run(step.step, step.lr);
      overhead_.push_back(seconds_now() - start);
    }
    idle_.set(false);
    return out;
  }

  std::map<std::string, Kind> kinds(const Rates& rates) {
    std::map<std::string, Kind> out;
    const auto& instrs = session_->train_program().instrs;
    for (const Instr& instr : instrs) {
      if (instr.lane != 0) continue;
      const Work work = work_of(instr);
      Kind& kind = out[instr.kind];
      ++kind.calls;
      kind.floor += rates.seconds_again(work.flops, work.bytes);
    }
    const TraceRange range = trace_->range();
    for (int64_t step = range.first; step <= range.last; ++step) {
      for (auto& [name, kind] : out) kind.seconds.push_back(0);
      const InstrTimes* times = trace_->of(step);
      for (InstrId id = 0; id < instrs.size(); ++id) {
        if (instrs[id].lane != 0) continue;
        out[instrs[id].kind].seconds.back() += static_cast<double>(times[id].issued - times[id].start) * 1e-9;
      }
    }
    return out;
  }

  Json report() {
    const Rates rates = probe_->rates();
    const double step = median(steps_);
    Json rows = Json::array();
    double compute = 0, floor = 0;
    for (const auto& [name, kind] : kinds(rates)) {
      const double seconds = median(kind.seconds);
      compute += seconds;
      floor += kind.floor;
      rows.push_back({{"op", name},
                      {"calls", kind.calls},
                      {"seconds", seconds},
                      {"of_step", seconds / step},
                      {"floor_seconds", kind.floor},
                      {"of_floor", kind.floor / seconds}});
    }
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Json& a, const Json& b) { return a["seconds"] > b["seconds"]; });
    const auto instructions = static_cast<double>(session_->train_program().instrs.size());
    const Overlap overlap{session_->overlap().alone_seconds, median(exposed_)};
    return Json{{"recipe", session_->recipe().name},
                {"ranks", options_.id.world},
                {"threads", settings_.threads},
                {"rounds", settings_.rounds},
                {"mesh", session_->train_program().mesh.text()},
                {"tokens", tokens_},
                {"seconds", step},
                {"tokens_per_s", static_cast<double>(tokens_) / step},
                {"compute_seconds", compute},
                {"floor_seconds", floor},
                {"of_floor", floor / step},
                {"instructions", session_->train_program().instrs.size()},
                {"overhead_ns", median(overhead_) / instructions * 1e9},
                {"communication",
                 {{"alone_seconds", overlap.alone_seconds},
                  {"exposed_seconds", overlap.exposed_seconds},
                  {"hidden", overlap.hidden()}}},
                {"probe_flops_per_s", rates.flops},
                {"probe_bytes_per_s", rates.bytes},
                {"rows", std::move(rows)}};
  }

  IdleSwitch idle_;
  SessionOptions options_;
  Settings settings_;
  std::unique_ptr<ThreadPool> pool_;
  std::optional<Probe> probe_;
  std::unique_ptr<Session> session_;
  std::optional<StepTrace> trace_;
  int64_t meetings_ = 0, tokens_ = 0;
  std::vector<double> steps_, exposed_, overhead_;
};

}  // namespace

Result<Json> measure_step(const Recipe& recipe, PluginSet& plugins, const SessionOptions& options,
                          const Settings& settings) {
  TENON_TRY(const auto bench, StepBench::open(recipe, plugins, options, settings));
  return bench->run();
}

}  // namespace tenon::bench
