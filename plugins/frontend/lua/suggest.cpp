#include "suggest.h"

#include <algorithm>
#include <cstdint>

namespace tenon::lua {

size_t edit_distance(std::string_view a, std::string_view b) {
  // The usual table, of which a row needs the two before it (the older one for swaps).
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

std::string closest(std::string_view name, const std::vector<std::string>& candidates) {
  std::string best;
  size_t least = SIZE_MAX;
  for (const std::string& candidate : candidates) {
    const size_t longer = std::max(name.size(), candidate.size());
    if (longer > 64) continue;
    const size_t distance = edit_distance(name, candidate);
    const bool near = distance < longer && distance <= std::max<size_t>(1, longer / 3);
    if (near && distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace tenon::lua
