// What bytes of gradient memory stand for while a program is followed, and how that adds up.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plan/verify/checks.h"

namespace tenon {

struct PartLayout;

// What some bytes stand for. Nothing known: empty().
struct Content {
  std::string tensor;
  std::map<std::pair<std::string, int>, int> from;  // (op, microbatch) -> how often
  // Per axis: how often each member's value is in the sum. Absent: the own one.
  std::map<AxisId, std::vector<int>> summed;
  // Set: a part of an exchanged buffer, at a place that depends on the rank.
  std::shared_ptr<const PartLayout> part_of;
  std::map<std::string, int> squares;  // parameters whose gradients' squares are in the sum, and how often
  std::vector<AxisId> owed;            // over which the squares must still be summed
  bool mixed = false;                  // several things in one, or what no gradient may be

  bool empty() const { return tensor.empty() && part_of == nullptr && squares.empty() && !mixed; }
  bool operator==(const Content&) const = default;
};

using Pieces = std::vector<std::pair<ByteRange, Content>>;

struct PartLayout {
  Pieces pieces;  // relative to the start
  AxisId axis = 0;
  uint64_t part_bytes = 0;
  int32_t flat = -1;  // parts are as Program::layouts cuts them, instead of equal along `axis`,
  size_t depth = 0;   // by so many of its axes
};

// Several things in one.
Content mixture();
// How often each member's value is in what one member has alone.
std::vector<int> only(int64_t member, int64_t members);
// The sum of two values, element by element.
Content sum(const Content& a, const Content& b);

}  // namespace tenon
