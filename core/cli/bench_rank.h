// The part of `tenon bench` that ranks do together. They are started as `train` starts them; what is asked of
// them, and what they report, passes through the job's folder.
#pragma once

#include "bench/bench.h"
#include "cli/job.h"

namespace tenon::cli {

// What waits in the job's folder: "comm" or "step".
Status ask_ranks(const Job& job, const std::string& part, const bench::Settings& settings);
// What a rank does of it; rank 0 leaves its report there. Collective.
Status bench_rank(PluginRegistry& registry, const Job& job, const SessionOptions& session);
Result<Json> report_of_ranks(const Job& job);

}  // namespace tenon::cli
