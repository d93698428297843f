// Text from a trained model.
#pragma once

#include <string>

#include "cli/job.h"
#include "run/session.h"

namespace tenon::cli {

struct SampleOptions {
  std::string prompt = "\n";
  int64_t length = 200;      // tokens to write
  double temperature = 0.8;  // 0: always the likeliest
  int64_t top_k = 40;        // 0: all
  uint64_t seed = 1;
};

// The prompt and what the model makes of it. Needs the data plugin's encode and decode.
Result<std::string> sample(Session& session, const SampleOptions& options);

}  // namespace tenon::cli
