// What a transfer within a class makes of what all members of its group hold: the same value, elsewhere.
#pragma once

#include "plan/verify/content.h"

namespace tenon {

class TransferRules {
 public:
  // `batch`: the axes that share out samples, major first; in exact mode sums over them are the upper levels
  // of the fixed tree.
  TransferRules(Forms& forms, std::vector<AxisId> batch, bool exact)
      : forms_(forms), batch_(std::move(batch)), exact_(exact) {}

  // A partial sum, summed. Errors (V007) have no place.
  Result<Content> summed(const Content& content, const std::vector<AxisId>& axes) const;
  // What member i holds, where everybody gets it.
  Result<Content> of_member(const Content& content, const std::vector<AxisId>& axes, int64_t member) const;
  // Each member keeps the part that is its own, of `n` parts of which this is the first.
  Result<Content> own_part(const Content& first, const std::vector<AxisId>& axes) const;
  // Both at once: of each member the part that is one's own.
  Result<Content> exchanged(const Content& first, const std::vector<AxisId>& axes, int64_t member) const;
  // From the member before.
  Result<Content> shifted(const Content& content, const std::vector<AxisId>& axes, int64_t shift) const;
  // x + y: of one value's addends, or of two values.
  Result<Content> added(const Content& x, const Content& y) const;

 private:
  Status fix(Form& form, const std::vector<AxisId>& axes, int64_t member) const;
  Result<Content> added_parts(const Content& x, const Content& y) const;
  Result<Block> joined(const Block& x, const Block& y) const;
  Result<Print> print_of_sum(const Content& content, const std::vector<AxisId>& axes) const;

  Forms& forms_;
  const std::vector<AxisId> batch_;
  const bool exact_;
};

}  // namespace tenon
