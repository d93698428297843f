// The recipes whose programs are changed: one for each strategy and for what they make of each other. Tiny,
// in f64, with dropout where the model has it, padding, clipping and two optimizer groups.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "base/json.h"

namespace tenon::mutants {

struct NamedRecipe {
  std::string name;
  Json document;
};
inline void PrintTo(const NamedRecipe& recipe, std::ostream* out) { *out << recipe.name; }
const std::vector<NamedRecipe>& recipes();

// The same model and optimizer on one device, in one microbatch.
Json alone(const Json& document);

}  // namespace tenon::mutants
