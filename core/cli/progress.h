// What a person sees while training: one live line on a terminal, plain lines elsewhere, JSON lines with
// --json; and the recipe's sinks.
#pragma once

#include <deque>
#include <memory>

#include "cli/eta.h"
#include "cli/job.h"
#include "cli/live_line.h"
#include "run/handle.h"
#include "run/loop.h"

namespace tenon::cli {

class Progress final : public LoopObserver {
 public:
  enum class Style : uint8_t { live, plain, json };
  // Opens the recipe's sinks in the folder of the run, which is borrowed.
  // `trace`: the file that a trace is written into.
  static Result<std::unique_ptr<Progress>> create(const PluginSet& plugins, const Job& job, Style style,
                                                  const std::string& trace);

  Status on_resume(const Session& session, const Loaded& from, int64_t attempt) override;
  Status on_start(const Session& session) override;
  Status on_step(const Session& session, const StepResult& step) override;
  Status on_eval(const Session& session, const EvalResult& eval, double seconds) override;
  Status on_save(const Session& session, const std::string& path, double seconds) override;
  Status on_trace(const Session& session, const std::vector<Span>& spans) override;
  Status on_end(const Session& session) override;

 private:
  struct Sink {
    std::string id;
    const tenon_sink* table;
    Handle<tenon_sink_state> state;
  };
  Progress(const Job& job, Style style, std::string trace)
      : job_(job), style_(style), trace_(std::move(trace)) {}
  struct Metric {
    const char* name;
    double value;
  };
  struct Text {
    const char* name;
    std::string text;
  };
  Status record(const char* event, const Session& session, const std::vector<Metric>& metrics,
                const std::vector<Text>& texts = {});
  Status write(const tenon_record& record) const;
  // A line that stays.
  void line(const std::string& text);
  // The line that the next one takes the place of; without a terminal it stays like any other.
  void live_line(const std::vector<Field>& fields);
  // "" while too few steps were measured.
  std::string eta_text(const Session& session, const StepResult& step) const;
  // What communication costs, and how much of it is hidden.
  Status report_overlap(const Session& session);
  // "resident X = planned Y + rest Z" of this process.
  Status report_memory(const Session& session);
  double median_seconds() const;

  const Job& job_;
  Style style_;
  std::string trace_;
  bool live_open_ = false;
  std::vector<Sink> sinks_;
  std::deque<double> recent_;  // seconds of the last steps
  Mean evals_, saves_;         // seconds
  int64_t first_step_ = 0;
  int64_t attempt_ = 1;
};

uint64_t resident_bytes();
std::string human_bytes(uint64_t bytes);
std::string human_seconds(double seconds);

}  // namespace tenon::cli
