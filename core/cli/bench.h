// The verb `bench`: measures kernels, communication, the optimizer and whole steps beside their floors.
#pragma once

#include "cli/job.h"
#include "cli/places.h"
#include "run/session.h"

namespace tenon::cli {

struct BenchOptions {
  std::vector<std::string> words;  // [part] [recipe] [key=value]...
  int ranks = 0;                   // of comm and step; 0: as the recipe's mesh says, for comm at least 2
  int threads = 0;                 // of a rank; 0: cores / ranks
  int rounds = 9;
  std::vector<uint64_t> sizes;
  std::vector<std::string> collectives;
  bool json = false;
};

// Exit code.
Result<int> run_bench(const Places& places, const BenchOptions& options);

// What a rank does of the benchmark that waits in the job's folder; rank 0 leaves its report there.
Status bench_rank(PluginRegistry& registry, const Job& job, const SessionOptions& session);

}  // namespace tenon::cli
