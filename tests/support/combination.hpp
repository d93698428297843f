// Recipes of small models in f64 under any combination of strategies.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "recipes.hpp"

namespace tenon::test {

struct Combination {
  std::string name;
  std::string model;  // "gpt2", "gpt2 untied", "llama", "moe"
  std::vector<std::pair<std::string, int>> mesh;
  std::string strategies;  // "data tensor+sp zero3 ..."
  std::string schedule = "";
  int microbatches = 1;
  int layers = 3;
  std::string optimizer = "adamw";
  int groups = 4;  // of llama's eight query heads, and of the others' four
};

inline void PrintTo(const Combination& c, std::ostream* out) { *out << c.name; }

// The model on its mesh with its strategies; `alone`: the same model on one device.
Json recipe_of(const Combination& c, const std::string& corpus, bool alone);

int world_of(const Combination& c);

}  // namespace tenon::test
