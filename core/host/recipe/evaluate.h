// From a recipe file to the resolved recipe. A recipe in Lua runs in the helper tenon-recipe; a .json file is
// a resolved recipe already.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "host/recipe/process.h"

namespace tenon {

struct RecipeRequest {
  std::string path;                    // of the recipe, as messages show it
  std::vector<std::string> overrides;  // "key=value"
  std::string helper;                  // path of tenon-recipe
  std::string plugin;                  // path of the front end's library
  std::string id = {};                 // and its id
  std::string library;                 // folder that holds the vocabulary (scripts/)
  ChildLimits limits;
};

struct ResolvedRecipe {
  Json recipe;                                    // docs/reference/resolved-recipe.md
  std::map<std::string, std::string> provenance;  // JSON pointer -> "file:line:column"; empty for .json
  Json parameters = Json::array();                // {name, kind, default, value, doc, ...} of each parameter
  std::string messages;                           // what the recipe printed
};

// Errors (R0xx, docs/reference/lua.md): the place is "file:line:column", followed by the source line with
// carets; the fix says what was meant. Ends within the limits, whatever the recipe does. Thread-safe.
Result<ResolvedRecipe> evaluate_recipe(const RecipeRequest& request);

// Where a part of the recipe was written: of the pointer itself or of the nearest part around it; "" if
// nothing is known.
std::string place_of(const ResolvedRecipe& recipe, const std::string& pointer);
// An error whose place is a JSON pointer ("/optimizer/options/beta3") gets the place in the source instead.
Error locate(Error error, const ResolvedRecipe& recipe);

}  // namespace tenon
