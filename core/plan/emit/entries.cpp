#include "plan/emit/entries.h"

#include <algorithm>

#include "plan/emit/collectives.h"

namespace tenon {

Entries::Entries(Scope& scope, const std::function<int64_t(const Bucket&)>& count) : scope_(scope) {
  for (size_t b = 0; b < scope.buckets().size(); ++b) {
    const Bucket& bucket = scope.buckets()[b];
    const int64_t numbers = bucket.owner ? count(bucket) : 0;
    if (numbers == 0) continue;
    std::vector<AxisId> axes = bucket.norm_axes;
    axes.insert(axes.end(), bucket.layout.axes.begin(), bucket.layout.axes.end());
    std::sort(axes.begin(), axes.end());
    entries_.push_back({std::move(axes), b, 0, numbers});
  }
  // Where storage is cut has no part in the order, in which they are added.
  std::ranges::stable_sort(entries_, {}, [this](const Entry& entry) -> const std::vector<AxisId>& {
    return bucket(entry).norm_axes;
  });
  int64_t first = 0;
  for (Entry& entry : entries_) {
    entry.first = first;
    first += entry.count;
  }
}

Operand Entries::open(const std::string& name) const {
  ProgramBuilder& builder = scope_.builder;
  const Operand vector = builder.scratch(name, Dtype::f64, {total()});
  if (std::ranges::any_of(entries_, [&](const Entry& entry) { return !bucket(entry).layout.axes.empty(); })) {
    Instr zeros = builder.begin("zeros", Phase::step);
    zeros.out = {vector};
    builder.push(std::move(zeros));
  }
  return vector;
}

void Entries::sum(const Operand& vector, Why::Because because) const {
  ProgramBuilder& builder = scope_.builder;
  for (size_t i = 0; i < entries_.size();) {
    size_t end = i;
    while (end < entries_.size() && entries_[end].axes == entries_[i].axes) ++end;
    const int64_t first = entries_[i].first, last = entries_[end - 1].first + entries_[end - 1].count;
    const auto of_these = builder.because(scope_.why(because, entries_[i].bucket));
    const auto over = [&](const std::vector<AxisId>& axes) {
      if (axes.empty()) return;
      emit_all_reduce(builder, part(vector, first, {last - first}, vector.name), axes, Phase::step,
                      scope_.context.tree);
    };
    if (scope_.context.options.exact) {  // who of those with zeros has a part must not show in the order
      std::vector<AxisId> parts = bucket(entries_[i]).layout.axes;
      std::ranges::sort(parts);
      over(parts);
      over(bucket(entries_[i]).norm_axes);
    } else {
      over(entries_[i].axes);
    }
    i = end;
  }
}

}  // namespace tenon
