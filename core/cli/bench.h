// The verb `bench`: measures kernels, communication, the optimizer and whole steps beside their floors.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/places.h"

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

}  // namespace tenon::cli
