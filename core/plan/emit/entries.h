// Numbers about buckets, side by side in one vector: what ranks have parts of is summed by one transfer for
// each set of axes.
#pragma once

#include <functional>

#include "plan/emit/scope.h"

namespace tenon {

struct Entry {               // of one bucket
  std::vector<AxisId> axes;  // over which the numbers of ranks are parts of a sum
  size_t bucket = 0;
  int64_t first = 0, count = 0;
};

class Entries {
 public:
  // Of the buckets that the class owns, those of which `count` is not 0.
  Entries(Scope& scope, const std::function<int64_t(const Bucket&)>& count);

  const std::vector<Entry>& all() const { return entries_; }
  // Memory for them, f64. Numbers of other members' parts of a bucket are zero there.
  Operand open(const std::string& name) const;
  // Over the ranks.
  void sum(const Operand& vector, Why::Because because) const;

 private:
  const Bucket& bucket(const Entry& entry) const { return scope_.buckets()[entry.bucket]; }
  int64_t total() const { return entries_.empty() ? 0 : entries_.back().first + entries_.back().count; }

  Scope& scope_;
  std::vector<Entry> entries_;
};

}  // namespace tenon
