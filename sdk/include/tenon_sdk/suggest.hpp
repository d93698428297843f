// tenon_sdk/suggest.hpp - "did you mean": the candidate nearest to a mistyped name. Header-only. The core and
// the front ends, which see nothing of one another, suggest alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::sdk {

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
inline size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the usual table: the current one, the one above and the one above that (for swaps).
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, substituted});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

// The nearest candidate, the first of equals; "" when none is near enough to be a slip of the fingers
// (more than a third of the longer name, but one edit is always near unless it is the whole name). What is
// longer than 64 bytes is no name that somebody typed, and costs nothing.
inline std::string closest(std::string_view name, std::span<const std::string> candidates) {
  constexpr size_t kLongest = 64;
  std::string best;
  size_t least = SIZE_MAX;
  for (const std::string& candidate : candidates) {
    const size_t longer = std::max(name.size(), candidate.size());
    if (longer > kLongest) continue;
    const size_t distance = edit_distance(name, candidate);
    const bool near = distance < longer && distance <= std::max<size_t>(1, longer / 3);
    if (near && distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

// "did you mean 'x'?", or "" when closest() finds nothing.
inline std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  const std::string best = closest(name, candidates);
  return best.empty() ? "" : "did you mean '" + best + "'?";
}

}  // namespace tenon::sdk
