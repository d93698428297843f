// Buckets: which parameters lie in them, and who has which part.
#include <fmt/format.h>

#include <algorithm>

#include "mutation.h"

namespace tenon::mutants {
namespace {
namespace of_layout {

using Programs = std::vector<Program>;

template <class Ways, class Change>
Sites at_layouts(const Program& program, Ways ways, Change change) {
  return at_each(program, &Program::layouts, ways, change);
}

template <auto member>
Sites numbers(const Programs& programs, size_t which) {
  return at_layouts(
      programs[which], [](const FlatLayout&) { return kNumberWays; },
      [](Program&, FlatLayout& layout, size_t way) { return renumber(layout.*member, way); });
}

template <auto member>
Sites leaf_numbers(const Programs& programs, size_t which) {
  return at_layouts(
      programs[which], [](const FlatLayout& layout) { return layout.leaves.size() * kNumberWays; },
      [](Program&, FlatLayout& layout, size_t way) {
        const size_t leaf = way / kNumberWays;
        const std::string what = renumber(layout.leaves[leaf].*member, way % kNumberWays);
        return what.empty() ? what : fmt::format("leaf {}: {}", leaf, what);
      });
}

Sites listed(const Programs& programs, size_t which) {
  return once(list_ways(programs[which].layouts),
              [](Program& program, size_t way) { return change_list(program.layouts, way); });
}

Sites leaves(const Programs& programs, size_t which) {
  return at_layouts(
      programs[which], [](const FlatLayout& layout) { return list_ways(layout.leaves); },
      [](Program&, FlatLayout& layout, size_t way) { return change_list(layout.leaves, way); });
}

// The same parameters in each other's places, which only their numbers tell.
Sites leaf_params(const Programs& programs, size_t which) {
  return at_layouts(
      programs[which], [](const FlatLayout& layout) { return layout.leaves.size() * layout.leaves.size(); },
      [](Program&, FlatLayout& layout, size_t way) -> std::string {
        const size_t n = layout.leaves.size(), a = way / n, b = way % n;
        if (a >= b) return "";
        std::swap(layout.leaves[a].param, layout.leaves[b].param);
        return fmt::format("parameters of leaves {} and {} exchanged", a, b);
      });
}

Sites axes(const Programs& programs, size_t which) {
  const Program& program = programs[which];
  return at_layouts(
      program, [&program](const FlatLayout& layout) { return axes_ways(program, layout.axes); },
      [](Program& changed, FlatLayout& layout, size_t way) {
        return change_axes(changed, layout.axes, way);
      });
}

constexpr int64_t kBy[] = {1, -1, 8, -8, 64};

Sites cuts(const Programs& programs, size_t which) {
  return at_layouts(
      programs[which],
      [](const FlatLayout& layout) { return layout.cuts.size() * std::size(kBy) + list_ways(layout.cuts); },
      [](Program&, FlatLayout& layout, size_t way) {
        const size_t moved = layout.cuts.size() * std::size(kBy);
        if (way >= moved) return change_list(layout.cuts, way - moved);
        const size_t at = way / std::size(kBy);
        layout.cuts[at] += kBy[way % std::size(kBy)];
        return fmt::format("cut {} moved by {}", at, kBy[way % std::size(kBy)]);
      });
}

using Leaf = FlatLayout::Leaf;
constexpr Mutation kMutations[] = {
    {"Program.layouts", "left out, repeated, exchanged", listed},
    {"FlatLayout.leaves", "left out, repeated, exchanged", leaves},
    {"FlatLayout.elements", "another number", numbers<&FlatLayout::elements>},
    {"FlatLayout.level", "another", numbers<&FlatLayout::level>},
    {"FlatLayout.axes", "others, or in another order", axes},
    {"FlatLayout.param_depth", "another", numbers<&FlatLayout::param_depth>},
    {"FlatLayout.cuts", "others", cuts},
    {"Leaf.param", "another", leaf_numbers<&Leaf::param>},
    {"Leaf.param", "two exchanged", leaf_params},
    {"Leaf.first", "another", leaf_numbers<&Leaf::first>},
    {"Leaf.count", "another", leaf_numbers<&Leaf::count>},
    {"Leaf.group", "another", leaf_numbers<&Leaf::group>},
};

}  // namespace of_layout
}  // namespace

std::span<const Mutation> layout_mutations() { return of_layout::kMutations; }

}  // namespace tenon::mutants
