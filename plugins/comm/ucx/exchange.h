// Small byte strings that all members of a group give each other through the host's rendezvous.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tenon/host.h"

namespace tenon::comm_ucx {

using Clock = std::chrono::steady_clock;
using Deadline = std::optional<Clock::time_point>;  // nothing: never

Deadline deadline_in(int64_t timeout_ns);
bool passed(const Deadline& deadline);
// < 0: never; 0: passed.
int64_t remaining_ns(const Deadline& deadline);
std::string seconds_text(int64_t ns);

inline constexpr size_t kMaxExchanged = 4096;  // bytes per member

// Every member's bytes, in the order of `ranks` (world ranks). `me` is this member's place in it. `name` is
// used once. Throws TIMEOUT with the ranks that have not come, or what the rendezvous said.
std::vector<std::string> exchange(const tenon_rendezvous& rendezvous, const std::string& name,
                                  const std::vector<int>& ranks, int me, const std::string& mine,
                                  const Deadline& deadline, int64_t timeout_ns);

}  // namespace tenon::comm_ucx
