// What `tenon bench` measures, each part beside the floor that the machine sets in the same minute. A report
// is the JSON that --json prints: times in seconds, rates per second, shares of 1; medians of what ran in
// turn, and of the floor the fastest sample. Nothing here depends on which plugins a recipe names.
#pragma once

#include "base/json.h"
#include "run/session.h"

namespace tenon::bench {

struct Settings {
  int threads = 1;  // of a rank
  int rounds = 9;
  std::vector<uint64_t> sizes;           // of messages, in bytes
  std::vector<std::string> collectives;  // "all_reduce", ...; empty: all
};

// Every kernel of the recipe's training program on one rank, of each shape once, on made-up values that are
// not in the caches.
Result<Json> measure_kernels(const Recipe& recipe, const PluginSet& plugins, const Settings& settings);

// The recipe's update of all its parameters on one rank, beside an add over the same arrays.
Result<Json> measure_optimizer(const Recipe& recipe, const PluginSet& plugins, const Settings& settings);

// Collectives of all ranks beside a bare loop over shared memory; f32, every buffer written anew before each
// call, the slowest rank's time. Collective; all ranks report the same. Ranks share a host. Error A013 when a
// result is wrong.
Result<Json> measure_comm(const PluginSet& plugins, RankId id, run::Rendezvous& rendezvous,
                          const Settings& settings);
std::vector<std::string> collective_names();

// Whole steps, as this rank sees them. `plugins` are this rank's own and outlive the call. Collective.
Result<Json> measure_step(const Recipe& recipe, PluginSet& plugins, const SessionOptions& options,
                          const Settings& settings);

// A report as a table for people. `report` has "bench", what a measure_...() returned, and
// "core_latency_ns".
std::string table_of(const Json& report);

// Nanoseconds for a cache line to go from one core to another, the least of many rounds: two virtual cores
// may share a cache or not, and it changes while they run. 0 on one core. Takes some milliseconds.
double core_latency();

}  // namespace tenon::bench
