// "Did you mean": the candidate nearest to a mistyped name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tenon::lua {

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b);
// The nearest candidate, the first of equals; "" when none is near enough to be a slip (at most a third of
// the longer name, but one edit is near unless it is the whole name).
std::string closest(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace tenon::lua
