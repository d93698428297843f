// "Did you mean": the candidate nearest to a mistyped name.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tenon {

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b);

// The nearest candidate, the first of equals; "" when none is near enough to be a slip of the fingers
// (more than a third of the longer name, but one edit is always near unless it is the whole name).
std::string closest(std::string_view name, std::span<const std::string> candidates);

// "did you mean 'x'?", or "" when closest() finds nothing.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace tenon
