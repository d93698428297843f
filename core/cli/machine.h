// The machine that `plan` simulates a step on: what the command line says of it, and what is made up.
#pragma once

#include <optional>

#include "base/json.h"
#include "plan/show/simulate.h"

namespace tenon::cli {

// What is not given is imagined: Machine's own values.
struct GivenMachine {
  std::optional<double> flops, memory_bytes, link_bytes, link_latency;
};

Machine machine_of(const GivenMachine& given);

// "an imagined machine: 100 GFLOP/s, memory 10 GB/s, links 5 GB/s and 10 us"; "the machine given: ..."; where
// some of it is given, what is imagined is marked.
std::string description_of(const GivenMachine& given);

// Its values, and the names of those that are imagined.
Json json_of(const GivenMachine& given);

}  // namespace tenon::cli
