#include "plan/verify/content.h"

#include <algorithm>

#include "base/assert.h"

namespace tenon {
namespace {

// The sum of two parts of buckets that are cut alike.
Content sum_of_parts(const Content& a, const Content& b) {
  const PartLayout &x = *a.part_of, &y = *b.part_of;
  if (x.flat < 0 || x.flat != y.flat || x.depth != y.depth) return mixture();
  const auto layout = std::make_shared<PartLayout>(x);
  layout->pieces.clear();
  for (const auto& [range, content] : x.pieces) {
    for (const auto& [other, more] : y.pieces) {
      const ByteRange both{std::max(range.lo, other.lo), std::min(range.hi, other.hi)};
      if (both.lo < both.hi) layout->pieces.emplace_back(both, sum(content, more));
    }
  }
  Content out;
  out.part_of = layout;
  return out;
}

}  // namespace

Content mixture() {
  Content out;
  out.mixed = true;
  return out;
}

std::vector<int> only(int64_t member, int64_t members) {
  TENON_ASSERT(0 <= member && member < members);
  std::vector<int> out(static_cast<size_t>(members));
  out[static_cast<size_t>(member)] = 1;
  return out;
}

Content sum(const Content& a, const Content& b) {
  if (a.empty() && b.empty()) return {};
  if (a.part_of != nullptr && b.part_of != nullptr && a.part_of != b.part_of) return sum_of_parts(a, b);
  if (a.mixed || b.mixed || a.tensor != b.tensor || a.part_of != b.part_of) return mixture();
  Content out = a;
  if (a.summed == b.summed && (a.summed.empty() || a.from != b.from)) {  // of microbatches
    for (const auto& [key, count] : b.from) out.from[key] += count;
    return out;
  }
  if (a.from != b.from || a.summed.size() != b.summed.size()) return mixture();
  for (auto& [axis, members] : out.summed) {  // of members
    const auto other = b.summed.find(axis);
    if (other == b.summed.end()) return mixture();
    TENON_ASSERT(members.size() == other->second.size());
    for (size_t i = 0; i < members.size(); ++i) members[i] += other->second[i];
  }
  return out;
}

}  // namespace tenon
