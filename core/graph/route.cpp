#include "graph/route.h"

#include <algorithm>

namespace tenon {
namespace {

// How many leading axes of a dim are already those of the target.
size_t agreed(const std::vector<AxisId>& from, const std::vector<AxisId>& to) {
  return static_cast<size_t>(std::mismatch(from.begin(), from.end(), to.begin(), to.end()).first -
                             from.begin());
}

// The dim of `to` on which `axis` comes next: appended there, it need not be moved again.
std::optional<size_t> landing(const Placement& from, const Placement& to, AxisId axis) {
  const auto d = to.sharded_dim(axis);
  if (!d) return std::nullopt;
  const auto &now = from.dims[*d], &then = to.dims[*d];
  const bool next = now.size() < then.size() && agreed(now, then) == now.size() && then[now.size()] == axis;
  return next ? d : std::nullopt;
}

Step move(TransferKind kind, AxisId axis, const Placement& from, std::optional<size_t> source,
          std::optional<size_t> target) {
  Step step{kind, axis, from};
  step.after.remove_partial(axis);
  if (source) std::erase(step.after.dims[*source], axis);
  if (target) step.after.dims[*target].push_back(axis);
  return step;
}

// A step that puts an axis where it stays.
std::optional<Step> landing_step(const Placement& from, const Placement& to) {
  for (const auto& dim : to.dims) {
    for (AxisId axis : dim) {
      const auto target = landing(from, to, axis);
      if (target && !from.sharded_dim(axis) && !from.is_partial(axis)) {
        return move(TransferKind::slice, axis, from, std::nullopt, target);
      }
    }
  }
  for (const Partial& partial : from.partials) {
    const auto target = landing(from, to, partial.axis);
    if (target) return move(TransferKind::reduce_scatter, partial.axis, from, std::nullopt, target);
  }
  for (size_t d = 0; d < from.dims.size(); ++d) {
    if (from.dims[d].size() == agreed(from.dims[d], to.dims[d])) continue;
    const AxisId axis = from.dims[d].back();
    const auto target = landing(from, to, axis);
    if (target && *target != d) return move(TransferKind::all_to_all, axis, from, d, target);
  }
  return std::nullopt;
}

// The next collective on the way from `from` to `to`, or nothing when they are equal. What makes the tensor
// smaller comes first. Only the innermost axis of a dim can leave it: the blocks of an outer one are not
// contiguous. Sums over the axes `first` come before all else, the last of them first.
std::optional<Step> next_step(const Placement& from, const Placement& to, const std::vector<AxisId>& first) {
  for (size_t i = first.size(); i-- > 0;) {
    if (!from.is_partial(first[i]) || to.is_partial(first[i])) continue;
    const auto target = landing(from, to, first[i]);
    return move(target ? TransferKind::reduce_scatter : TransferKind::all_reduce, first[i], from,
                std::nullopt, target);
  }
  if (auto step = landing_step(from, to)) return step;
  for (size_t d = 0; d < from.dims.size(); ++d) {
    if (from.dims[d].size() == agreed(from.dims[d], to.dims[d])) continue;
    return move(TransferKind::all_gather, from.dims[d].back(), from, d, std::nullopt);
  }
  for (const Partial& partial : from.partials) {
    if (!to.is_partial(partial.axis))
      return move(TransferKind::all_reduce, partial.axis, from, std::nullopt, std::nullopt);
  }
  return std::nullopt;
}

}  // namespace

Routes::Routes(const Mesh& mesh, const std::vector<AxisId>& first) : first_(first) {
  for (AxisId axis = 0; axis < mesh.axes.size(); ++axis) {
    const std::string& whole = mesh.axes[axis].part_of;
    if (whole.empty()) continue;
    if (axis > 0 && mesh.axes[axis - 1].part_of == whole)
      units_.back().push_back(axis);
    else
      units_.push_back({axis});
  }
}

// Behind one another on one dim, partial sums over all of them, or neither.
bool Routes::used_as_one(const Placement& placement, const Unit& unit) {
  if (const auto d = placement.sharded_dim(unit[0])) {
    const auto& dim = placement.dims[*d];
    const auto at = std::ranges::find(dim, unit[0]);
    return dim.end() - at >= static_cast<ptrdiff_t>(unit.size()) && std::equal(unit.begin(), unit.end(), at);
  }
  const auto like_the_first = [&](AxisId axis) {
    return !placement.sharded_dim(axis) && placement.is_partial(axis) == placement.is_partial(unit[0]);
  };
  return std::ranges::all_of(unit, like_the_first);
}

Placement Routes::folded(Placement placement, const Unit& unit) {
  for (size_t i = 1; i < unit.size(); ++i) {
    placement.remove_partial(unit[i]);
    for (auto& dim : placement.dims) std::erase(dim, unit[i]);
  }
  return placement;
}

Placement Routes::unfolded(Placement placement, const Unit& unit) {
  if (const auto d = placement.sharded_dim(unit[0])) {
    auto& dim = placement.dims[*d];
    dim.insert(std::ranges::find(dim, unit[0]) + 1, unit.begin() + 1, unit.end());
  }
  for (size_t i = 1; i < unit.size() && placement.is_partial(unit[0]); ++i)
    placement.add_partial(unit[i], Reduction::sum);
  return placement;
}

// Parts of one axis that both placements use as one are moved together.
std::optional<Step> Routes::next(Placement from, Placement to) const {
  std::vector<Unit> together;
  for (const Unit& unit : units_) {
    if (!used_as_one(from, unit) || !used_as_one(to, unit)) continue;
    from = folded(std::move(from), unit);
    to = folded(std::move(to), unit);
    together.push_back(unit);
  }
  std::optional<Step> step = next_step(from, to, first_);
  for (const Unit& unit : together) {
    if (!step) break;
    if (unit[0] == step->axis) step->axes = unit;
    step->after = unfolded(std::move(step->after), unit);
  }
  return step;
}

size_t Routes::length(Placement from, const Placement& to) const {
  size_t out = 0;
  while (auto step = next(from, to)) {
    from = std::move(step->after);
    ++out;
  }
  return out;
}

}  // namespace tenon
