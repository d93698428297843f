// tenon_sdk/comm/members.hpp - checking and naming the members of a group. Header-only.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tenon_sdk/plugin.hpp"

namespace tenon::comm {

// Where `rank` stands among `members`. Throws TENON_E_ARGUMENT when the list is no group of this world that
// has `rank` in it.
inline int index_of(const std::vector<int>& members, int rank, int world) {
  for (const int member : members) {
    if (member < 0 || member >= world) {
      throw sdk::Failure(TENON_E_ARGUMENT,
                         "rank " + std::to_string(member) + " in a world of " + std::to_string(world));
    }
    if (std::count(members.begin(), members.end(), member) > 1) {
      throw sdk::Failure(TENON_E_ARGUMENT, "rank " + std::to_string(member) + " is twice in the group");
    }
  }
  const auto found = std::find(members.begin(), members.end(), rank);
  if (found == members.end()) {
    throw sdk::Failure(TENON_E_ARGUMENT, "rank " + std::to_string(rank) + " opens a group that it is not in");
  }
  return static_cast<int>(found - members.begin());
}

// "0, 2, 4", at most 16 of them.
inline std::string rank_list(const std::vector<int>& ranks) {
  constexpr size_t kMostNamed = 16;
  std::string out;
  for (size_t i = 0; i < ranks.size() && i < kMostNamed; ++i)
    out += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > kMostNamed) out += " and " + std::to_string(ranks.size() - kMostNamed) + " more";
  return out;
}

}  // namespace tenon::comm
