#include "cli/tracing.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>

#include "cli/files.h"

namespace tenon::cli {
namespace {

// "2:3".
std::optional<TraceRange> read_range(const std::string& text) {
  TraceRange out;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, out.first);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ':') return std::nullopt;
  const auto last = std::from_chars(first.ptr + 1, end, out.last);
  if (last.ec != std::errc() || last.ptr != end) return std::nullopt;
  return out;
}

// The first step is not typical, and left out where there are more.
TraceRange default_range(int64_t done, int64_t all) {
  return {std::min(done + 2, all), std::min(done + 3, all)};
}

}  // namespace

void add_trace_options(CLI::App& verb, Tracing& tracing) {
  verb.add_option("--trace", tracing.file, "write what really ran in some steps for a trace viewer (.json)");
  verb.add_option("--trace-steps", tracing.steps,
                  "which: first:last (default: the second and the third that are done now)");
}

std::vector<std::string> words_of(const Tracing& tracing) {
  if (tracing.file.empty()) return {};
  return {"--trace", tracing.file, "--trace-steps", tracing.steps};
}

Result<TraceRange> steps_of(const Tracing& tracing, int64_t done, int64_t all) {
  if (tracing.file.empty()) {
    if (tracing.steps.empty()) return TraceRange{};
    return Error{"R004", "steps to trace, and no file", "--trace-steps", "--trace out.json",
                 TENON_E_ARGUMENT};
  }
  if (done >= all) {
    return Error{"R005", fmt::format("no steps to trace: all {} are done", all), "--trace",
                 "trace a run that goes on", TENON_E_ARGUMENT};
  }
  if (tracing.steps.empty()) return default_range(done, all);
  constexpr int64_t kMost = 100;  // times take 32 bytes an instruction and step
  const auto range = read_range(tracing.steps);
  if (!range || range->first <= done || range->last < range->first || range->last > all ||
      range->last - range->first >= kMost) {
    return Error{"R005", "no steps to trace: '" + tracing.steps + "'", "--trace-steps",
                 fmt::format("first:last, of the steps {} to {}, at most {}", done + 1, all, kMost),
                 TENON_E_ARGUMENT};
  }
  return *range;
}

Result<Tracing> prepare_trace(const Tracing& tracing, int64_t done, int64_t all) {
  TENON_TRY(const TraceRange range, steps_of(tracing, done, all));
  if (tracing.file.empty()) return tracing;
  TENON_CHECK(write_file(tracing.file, ""));
  return Tracing{tracing.file, fmt::format("{}:{}", range.first, range.last)};
}

}  // namespace tenon::cli
