#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/trail.h"
#include "cli/ending.h"
#include "cli/files.h"

namespace tenon::cli {
namespace {

// That share this process's memory: the world with virtual ranks, else 1.
uint64_t ranks_in_process(const RankDevice& device) {
  const bool shared = (device.plugins().comm.table->flags & TENON_COMM_IN_PROCESS) != 0;
  return shared ? static_cast<uint64_t>(device.id().world) : 1;
}

}  // namespace

uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

std::string human_bytes(uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 10u << 20) return fmt::format("{:.0f} KiB", value / 1024);
  if (bytes < 10ull << 30) return fmt::format("{:.0f} MiB", value / (1 << 20));
  return fmt::format("{:.1f} GiB", value / (1 << 30));
}

std::string human_seconds(double seconds) {
  const int64_t s = std::lround(seconds);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
}

Result<std::unique_ptr<Progress>> Progress::create(const PluginSet& plugins, const Job& job, Style style,
                                                   const std::string& trace) {
  std::unique_ptr<Progress> out(new Progress(job, style, trace));
  for (const auto& sink : plugins.sinks) {
    auto config = config_of<tenon_sink_config>(sink);
    config.directory = job.directory.c_str();
    config.run = job.run_id.c_str();
    config.recipe = job.recipe.document.c_str();
    TENON_TRY(auto state, open_with_options<tenon_sink_state>(
                              sink.id, sink.pointer, sink.table->close,
                              [&](auto** o, auto* e) { return sink.table->open(&config, o, e); }));
    out->sinks_.push_back({sink.id, sink.table, std::move(state)});
  }
  return out;
}

Status Progress::record(const char* event, const Session& session, const std::vector<Metric>& metrics,
                        const std::vector<Text>& texts) {
  std::vector<tenon_metric> given;
  std::vector<tenon_text> given_texts;
  for (const Metric& metric : metrics) given.push_back({sizeof(tenon_metric), 0, metric.name, metric.value});
  for (const Text& text : texts) given_texts.push_back({sizeof(tenon_text), 0, text.name, text.text.c_str()});
  std::vector<const tenon_metric*> pointers;
  std::vector<const tenon_text*> text_pointers;
  for (const tenon_metric& metric : given) pointers.push_back(&metric);
  for (const tenon_text& text : given_texts) text_pointers.push_back(&text);
  TENON_CHECK(write({.struct_size = sizeof(tenon_record),
                     .num_metrics = static_cast<uint32_t>(pointers.size()),
                     .event = event,
                     .step = session.steps_done(),
                     .attempt = attempt_,
                     .metrics = pointers.data(),
                     .texts = text_pointers.data(),
                     .num_texts = static_cast<uint32_t>(text_pointers.size()),
                     .reserved = 0}));
  if (style_ == Style::json) {
    Json json{{"event", event}, {"step", session.steps_done()}, {"attempt", attempt_}};
    for (const Metric& metric : metrics) json[metric.name] = metric.value;
    for (const Text& text : texts) json[text.name] = text.text;
    std::printf("%s\n", printable(json).c_str());
    flush_output();
  }
  return {};
}

Status Progress::write(const tenon_record& record) const {
  for (const Sink& sink : sinks_) {
    tenon_error error = empty_abi_error();
    const tenon_code code = sink.table->write(sink.state.get(), &record, &error);
    if (code != TENON_OK) return from_abi(code, error, sink.id);
  }
  return {};
}

void Progress::line(const std::string& text) {
  if (style_ == Style::json) return;
  std::printf("%s%s\n", live_open_ ? "\n" : "", text.c_str());
  live_open_ = false;
  flush_output();
}

// The last column stays free: some terminals go to the next row as soon as it is written.
void Progress::live_line(const std::vector<Field>& fields) {
  if (style_ != Style::live) return line(joined(fields));
  std::printf("\r\033[2K%s", fitted(fields, terminal_columns(STDOUT_FILENO) - 1).c_str());
  live_open_ = true;
  flush_output();
}

double Progress::median_seconds() const {
  std::vector<double> sorted(recent_.begin(), recent_.end());
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<long>(sorted.size() / 2), sorted.end());
  return sorted[sorted.size() / 2];
}

Status Progress::on_resume(const Session& session, const Loaded& from, int64_t attempt) {
  attempt_ = attempt;
  Json passed_over = Json::array();
  for (const checkpoint::Rejected& rejected : from.passed_over) {
    line(fmt::format("warning: passed over {}: {}", rejected.directory, rejected.error.cause));
    passed_over.push_back({{"checkpoint", rejected.directory}, {"cause", rejected.error.cause}});
  }
  const std::string what = from.directory.empty() ? "nothing was saved" : from.directory;
  line(fmt::format("from {:>5}  {}", session.steps_done(), what));
  if (style_ == Style::json) {
    const Json event{{"event", "resume"},
                     {"step", session.steps_done()},
                     {"checkpoint", from.directory},
                     {"passed_over", passed_over}};
    std::printf("%s\n", printable(event).c_str());
    flush_output();
  }
  return {};
}

Status Progress::report_memory(const Session& session) {
  const uint64_t resident = resident_bytes();
  const uint64_t planned = session.memory().total() * ranks_in_process(session.device());
  const auto rest = static_cast<int64_t>(resident - planned);  // below zero while planned memory is untouched
  line(fmt::format("resident {} = planned {} + rest {}{}", human_bytes(resident), human_bytes(planned),
                   rest < 0 ? "-" : "", human_bytes(static_cast<uint64_t>(std::abs(rest)))));
  return record("memory", session,
                {{"resident_bytes", static_cast<double>(resident)},
                 {"planned_bytes", static_cast<double>(planned)},
                 {"rest_bytes", static_cast<double>(rest)}});
}

Status Progress::on_trace(const Session& session, const std::vector<Span>& spans) {
  constexpr double kMicroseconds = 1e-3;  // of a nanosecond
  TENON_CHECK(write_file(trace_, chrome_trace_of(spans, kMicroseconds)));
  line(fmt::format("trace {:>4}  {}", session.steps_done(), trace_));
  return record("trace", session, {{"spans", static_cast<double>(spans.size())}}, {{"path", trace_}});
}

Status Progress::on_end(const Session& session) {
  TENON_CHECK(report_overlap(session));
  return report_memory(session);
}

Status Progress::report_overlap(const Session& session) {
  const Overlap overlap = session.overlap();
  if (overlap.alone_seconds <= 0) return {};
  line(fmt::format(
      "communication of rank 0: {:.2f} ms a step on its own, {:.2f} ms beside the work: {:.0f}% hidden",
      overlap.alone_seconds * 1e3, overlap.exposed_seconds * 1e3, overlap.hidden() * 100));
  return record("overlap", session,
                {{"alone_ms", overlap.alone_seconds * 1e3},
                 {"exposed_ms", overlap.exposed_seconds * 1e3},
                 {"hidden", overlap.hidden()}});
}

Status Progress::on_start(const Session& session) {
  first_step_ = session.steps_done();
  const int64_t parameters = num_parameters(session.programs().layout());
  const RankMemory memory = session.memory();
  line(fmt::format("{} parameters in {} tensors, mesh {}, {} tokens per step", parameters,
                   num_tensors(session.programs().layout()), session.train_program().mesh.text(),
                   session.recipe().batch * session.recipe().context));
  line(fmt::format("memory of a rank: {} planned (parameters {}, state {}, arena {})",
                   human_bytes(memory.total()), human_bytes(memory.of(Space::param)),
                   human_bytes(memory.of(Space::state)), human_bytes(memory.of(Space::arena))));
  return record("start", session,
                {{"parameters", static_cast<double>(parameters)},
                 {"planned_bytes", static_cast<double>(memory.total())}});
}

Status Progress::on_step(const Session& session, const StepResult& step) {
  constexpr size_t kWindow = 50;
  recent_.push_back(step.seconds);
  if (recent_.size() > kWindow) recent_.pop_front();
  const double median = median_seconds();
  const double tokens_per_s = static_cast<double>(step.tokens) / step.seconds;
  const uint64_t resident = resident_bytes();
  TENON_CHECK(record("step", session,
                     {{"loss", step.loss},
                      {"grad_norm", step.grad_norm},
                      {"lr", step.lr},
                      {"step_ms", step.seconds * 1e3},
                      {"tokens_per_s", tokens_per_s},
                      {"tokens", static_cast<double>(step.tokens)},
                      {"resident_bytes", static_cast<double>(resident)}}));
  const Recipe& recipe = session.recipe();
  if (step.step == first_step_ + 1) TENON_CHECK(report_memory(session));  // by now all of it is in use
  const bool logged =
      step.step % recipe.log_every == 0 || step.step == recipe.steps || step.step == first_step_ + 1;
  if (!logged && style_ != Style::live) return {};
  live_line({{fmt::format("step {:>5}/{}", step.step, recipe.steps), 0},
             {fmt::format("loss {:.4f}", step.loss), 0},
             {fmt::format("norm {:.3f}", step.grad_norm), 4},
             {fmt::format("lr {:.2e}", step.lr), 5},
             {fmt::format("{:.0f} ms", median * 1e3), 3},
             {fmt::format("{:.0f} tok/s", static_cast<double>(step.tokens) / median), 2},
             {human_bytes(resident), 6},
             {eta_text(session, step), 1}});
  return {};
}

std::string Progress::eta_text(const Session& session, const StepResult& step) const {
  constexpr int64_t kCredible = 5;  // the first steps after a start are not typical
  if (step.step - first_step_ < kCredible) return "";
  const Recipe& recipe = session.recipe();
  const Eta eta = eta_of(remaining_after(step.step, recipe.steps, recipe.eval_every, recipe.save_every),
                         {median_seconds(), evals_, saves_});
  return "eta " + human_seconds(eta.seconds) + (eta.at_least ? "+" : "");
}

Status Progress::on_eval(const Session& session, const EvalResult& eval, double seconds) {
  evals_.add(seconds);
  line(fmt::format("eval {:>5}  validation loss {:.4f} over {} tokens", session.steps_done(), eval.loss,
                   eval.tokens));
  return record("eval", session, {{"loss", eval.loss}, {"tokens", static_cast<double>(eval.tokens)}});
}

Status Progress::on_save(const Session& session, const std::string& path, double seconds) {
  saves_.add(seconds);
  trail::advise(resume_advice(job_));
  line(fmt::format("save {:>5}  {}  {:.0f} ms", session.steps_done(), path, seconds * 1e3));
  return record("save", session, {{"seconds", seconds}}, {{"path", path}});
}

}  // namespace tenon::cli
