// Facts about ranges of bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/assert.h"

namespace tenon {

struct ByteRange {  // [lo, hi)
  uint64_t lo = 0, hi = 0;
};

// Disjoint segments, split as needed.
template <class Fact>
class ByteMap {
 public:
  // Calls visit(fact) for every piece of [lo, hi), creating what is missing.
  template <class Visit>
  void each(const ByteRange& range, Visit visit) {
    TENON_ASSERT(range.lo <= range.hi);
    split(range.lo);
    split(range.hi);
    for (uint64_t at = range.lo; at < range.hi;) {
      auto it = map_.lower_bound(at);
      if (it == map_.end() || it->first > at) {
        const uint64_t end = it == map_.end() ? range.hi : std::min(range.hi, it->first);
        it = map_.emplace(at, std::make_pair(end, Fact{})).first;
      }
      visit(it->second.second);
      at = it->second.first;
    }
  }

  // The pieces of [lo, hi) in order; where nothing is known, a piece without facts.
  std::vector<std::pair<ByteRange, Fact>> pieces(const ByteRange& range) const {
    TENON_ASSERT(range.lo <= range.hi);
    std::vector<std::pair<ByteRange, Fact>> out;
    uint64_t at = range.lo;
    auto it = map_.upper_bound(at);
    if (it != map_.begin() && std::prev(it)->second.first > at) --it;
    for (; it != map_.end() && it->first < range.hi; ++it) {
      if (it->first > at) out.push_back({{at, it->first}, Fact{}});
      const uint64_t end = std::min(range.hi, it->second.first);
      out.push_back({{std::max(range.lo, it->first), end}, it->second.second});
      at = end;
    }
    if (at < range.hi) out.push_back({{at, range.hi}, Fact{}});
    return out;
  }

  // One fact for the whole range, instead of what was there.
  void assign(const ByteRange& range, Fact fact) {
    TENON_ASSERT(range.lo <= range.hi);
    if (range.lo == range.hi) return;
    split(range.lo);
    split(range.hi);
    map_.erase(map_.lower_bound(range.lo), map_.lower_bound(range.hi));
    map_.emplace(range.lo, std::make_pair(range.hi, std::move(fact)));
  }

 private:
  void split(uint64_t at) {
    auto it = map_.upper_bound(at);
    if (it == map_.begin()) return;
    --it;
    if (it->first >= at || it->second.first <= at) return;
    const uint64_t end = it->second.first;
    it->second.first = at;
    map_.emplace(at, std::make_pair(end, it->second.second));
  }
  std::map<uint64_t, std::pair<uint64_t, Fact>> map_;
};

}  // namespace tenon
