// What bytes of a rank hold: the fingerprint of a value, and in which form they stand for it.
#pragma once

#include <memory>
#include <span>

#include "plan/verify/form.h"
#include "plan/verify/print.h"

namespace tenon {

struct Parts;

// Instead of a microbatch: made from none, or from several, or not known.
constexpr int32_t kOfAll = -1, kOfSeveral = -2;

struct Content {
  Print print;
  FormId form = kNone;                      // none: nothing is known, unless `parts`
  Print blocks;                             // Form::blocks: the sum of block_print() of those that are in
  std::shared_ptr<const Parts> parts = {};  // of a bucket, instead of a form
  int32_t microbatch = kOfSeveral;          // whose inputs it is made from

  bool known() const { return form != kNone || parts != nullptr; }
  bool operator==(const Content& other) const;
};

// A part of a bucket that depends on the rank: each leaf's content is that of the whole leaf.
struct Parts {
  // Cut as Program::layouts[layout] is by the first `depth` of its axes; or, layout < 0, into equal parts by
  // a rank's place on the axes of the slab.
  int32_t layout = -1;
  size_t depth = 0;
  std::vector<AxisId> slab;
  Block block;                                       // of all leaves
  std::vector<std::pair<uint64_t, Content>> leaves;  // and where they begin, in bytes of the whole
  uint64_t bytes = 0;                                // of the part
  bool operator==(const Parts&) const = default;
};

// Which block of keys: that of the member so many places before.
Print block_print(int64_t shift);
// All of them, each once.
Print all_blocks(int64_t members);

// Of zeros, any number of which are zeros.
Print zeros_print();

// Of what is made from two.
inline int32_t joint_microbatch(int32_t x, int32_t y) {
  if (x == y || y == kOfAll) return x;
  return x == kOfAll ? y : kOfSeveral;
}

// x + y. In exact mode the order counts, for additions of numbers do not associate.
Print plus(const Print& x, const Print& y, bool ordered);

}  // namespace tenon
