// Small byte strings that all members of a group give each other through the host's rendezvous.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/host.h"
#include "tenon_sdk/comm/deadline.hpp"

namespace tenon::comm_ucx {

using comm::Clock;
using comm::Deadline;
using comm::deadline_in;
using comm::passed;
using comm::remaining_ns;
using comm::seconds_text;

inline constexpr size_t kMaxExchanged = 4096;  // bytes per member

// Every member's bytes, in the order of `ranks` (world ranks). `me` is this member's place in it. `name` is
// used once. Throws TIMEOUT with the ranks that have not come, or what the rendezvous said.
std::vector<std::string> exchange(const tenon_rendezvous& rendezvous, const std::string& name,
                                  const std::vector<int>& ranks, int me, const std::string& mine,
                                  const Deadline& deadline, int64_t timeout_ns);

}  // namespace tenon::comm_ucx
