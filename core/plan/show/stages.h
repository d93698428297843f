// The graphs on the way from a recipe to a program, as text: `tenon plan --stage`.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "plan/show/why.h"

namespace tenon {

enum class GraphStage : uint8_t { model, placed, joint };
// By its name in the enumeration.
std::optional<GraphStage> graph_stage(std::string_view name);

// Of the stage, or, of a recipe that is refused before it, the last that there is; "" if there is none.
// A line for each value that no op makes, and one for each result of each op: dims, placement and, in
// brackets, for each axis of the placement the strategy behind it and the value of which it said so. A
// collective's line is followed by why it is there, an op of the recipe's ends with its place there.
std::string text(const Graphs& graphs, GraphStage stage, const Mesh& mesh, const RecipeSource& source);

}  // namespace tenon
