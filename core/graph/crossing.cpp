#include "graph/crossing.h"

#include <algorithm>

namespace tenon {
namespace {

// Whether what is read follows from what is sent, by nothing but sums, gathers and cuts; and not by a gather
// over an axis over which the value was whole.
bool follows(const Placement& read, const Placement& sent, const Placement& made) {
  const auto is_partial_too = [&](const Partial& partial) { return sent.is_partial(partial.axis); };
  if (!std::ranges::all_of(read.partials, is_partial_too)) return false;
  for (const auto& dim : sent.dims) {
    for (AxisId axis : dim) {
      const bool was_whole = !made.sharded_dim(axis) && !made.is_partial(axis);
      if (was_whole && !read.sharded_dim(axis)) return false;
    }
  }
  return true;
}

int64_t parts_of(const Mesh& mesh, const Placement& placement) {
  int64_t out = 1;
  for (const auto& dim : placement.dims) out *= mesh.size(dim);
  return out;
}

}  // namespace

Placement crossing_form(const Routes& routes, const Mesh& mesh, const Crossing& crossing) {
  std::vector<Placement> forms = crossing.read;
  forms.push_back(crossing.made);
  const auto allows_all = [&](const Placement& form) {
    return std::ranges::all_of(crossing.read,
                               [&](const Placement& read) { return follows(read, form, crossing.made); });
  };
  const auto steps = [&](const Placement& form) {
    size_t out = routes.length(crossing.made, form);
    for (const Placement& read : crossing.read) out += routes.length(form, read);
    return out;
  };
  const Placement* best = nullptr;
  for (const Placement& form : forms) {
    if (!allows_all(form)) continue;
    const int64_t more = best == nullptr ? 1 : parts_of(mesh, form) - parts_of(mesh, *best);
    if (more > 0 || (more == 0 && steps(form) < steps(*best))) best = &form;
  }
  return *best;  // all follows from what was made
}

}  // namespace tenon
