// Reports as tables for people.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>

#include "bench/bench.h"

namespace tenon::bench {
namespace {

struct Column {
  const char* key;
  const char* title;
  double scale;  // of a number; 0: text
  int decimals;
};

constexpr Column kKernels[] = {{"name", "kernel", 0, 0},         {"calls", "a step", 1, 0},
                               {"seconds", "us", 1e6, 1},        {"flops_per_s", "GFLOP/s", 1e-9, 1},
                               {"bytes_per_s", "GB/s", 1e-9, 1}, {"of_floor", "of floor %", 100, 0}};
constexpr Column kComm[] = {{"op", "collective", 0, 0},       {"bytes", "bytes", 1, 0},
                            {"seconds", "us", 1e6, 2},        {"bare_seconds", "bare us", 1e6, 2},
                            {"bytes_per_s", "GB/s", 1e-9, 2}, {"of_bare", "of bare %", 100, 0}};
constexpr Column kOptimizer[] = {{"plugin", "optimizer", 0, 0},
                                 {"parameters", "parameters", 1, 0},
                                 {"seconds", "ms", 1e3, 2},
                                 {"bytes_per_s", "GB/s", 1e-9, 1},
                                 {"add_bytes_per_s", "add GB/s", 1e-9, 1},
                                 {"of_floor", "of floor %", 100, 0}};
constexpr Column kStep[] = {{"op", "op", 0, 0},
                            {"calls", "a step", 1, 0},
                            {"seconds", "ms", 1e3, 3},
                            {"of_step", "of step %", 100, 1},
                            {"floor_seconds", "floor ms", 1e3, 3},
                            {"of_floor", "of floor %", 100, 0}};

std::string cell(const Json& row, const Column& column) {
  if (column.scale == 0) return fmt::format("{:<44}", row.at(column.key).get<std::string>());
  return fmt::format(" {:>12.{}f}", row.at(column.key).get<double>() * column.scale, column.decimals);
}

std::string rows_text(const Json& rows, std::span<const Column> columns) {
  std::string out;
  for (const Column& column : columns)
    out += fmt::format(fmt::runtime(column.scale == 0 ? "{:<44}" : " {:>12}"), column.title);
  for (const Json& row : rows) {
    out += '\n';
    for (const Column& column : columns) out += cell(row, column);
  }
  return out + '\n';
}

std::span<const Column> columns_of(const std::string& bench) {
  if (bench == "kernels") return kKernels;
  if (bench == "comm") return kComm;
  return bench == "optimizer" ? std::span<const Column>(kOptimizer) : std::span<const Column>(kStep);
}

std::string head_of(const Json& report) {
  std::string out = report.at("bench").get<std::string>();
  for (const char* key : {"recipe", "plugin", "mesh"}) {
    if (report.contains(key)) out += ", " + report[key].get<std::string>();
  }
  for (const char* key : {"ranks", "threads", "rounds"}) {
    if (report.contains(key)) out += fmt::format(", {} {}", report[key].get<int64_t>(), key);
  }
  const Json& latency = report.at("core_latency_ns");
  return out + fmt::format("; core to core {:.0f} ns before, {:.0f} ns after\n", latency[0].get<double>(),
                           latency[1].get<double>());
}

std::string step_text(const Json& r) {
  const auto number = [&r](const char* key) { return r.at(key).get<double>(); };
  const Json& communication = r.at("communication");
  std::string out = fmt::format(
      "step {:.3f} ms, {:.0f} tokens/s; floor {:.3f} ms: {:.0f}% (probes: {:.1f} GFLOP/s, {:.1f} GB/s)\n",
      number("seconds") * 1e3, number("tokens_per_s"), number("floor_seconds") * 1e3,
      number("of_floor") * 100, number("probe_flops_per_s") * 1e-9, number("probe_bytes_per_s") * 1e-9);
  out +=
      fmt::format("executor {:.0f} ns for each of {} instructions: {:.3f} ms\n", number("overhead_ns"),
                  r.at("instructions").get<int64_t>(), number("overhead_ns") * number("instructions") * 1e-6);
  if (r.at("ranks") == 1) return out;
  return out +
         fmt::format(
             "communication of rank 0: {:.3f} ms on its own, {:.3f} ms beside the work: {:.0f}% hidden\n",
             communication.at("alone_seconds").get<double>() * 1e3,
             communication.at("exposed_seconds").get<double>() * 1e3,
             communication.at("hidden").get<double>() * 100);
}

}  // namespace

std::string table_of(const Json& report) {
  const auto bench = report.at("bench").get<std::string>();
  std::string out = head_of(report) + rows_text(report.at("rows"), columns_of(bench));
  return bench == "step" ? out + step_text(report) : out;
}

}  // namespace tenon::bench
