// A folder for recipes that goes away with the test, and the real evaluation.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "host/recipe/evaluate.h"

namespace tenon {

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

class RecipeFolder {
 public:
  RecipeFolder() {
    std::string name = testing::TempDir() + "tenon-recipe-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~RecipeFolder() { std::filesystem::remove_all(path_); }
  RecipeFolder(const RecipeFolder&) = delete;
  RecipeFolder& operator=(const RecipeFolder&) = delete;

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path_ + "/" + name).parent_path());
    std::ofstream(path_ + "/" + name, std::ios::binary) << text;
  }
  std::string at(const std::string& name) const { return path_ + "/" + name; }
  // Text without the folder's name, which differs from run to run.
  std::string shown(std::string text) const {
    for (size_t i = text.find(path_ + "/"); i != std::string::npos; i = text.find(path_ + "/")) {
      text.erase(i, path_.size() + 1);
    }
    return text;
  }

 private:
  std::string path_;
};

inline RecipeRequest request_for(const std::string& path, std::vector<std::string> overrides = {}) {
  RecipeRequest request;
  request.path = path;
  request.overrides = std::move(overrides);
  request.helper = HELPER;
  request.plugin = FRONTEND;
  request.library = TENON_SOURCE_DIR "/scripts";
  // The helper's own limits come first, however busy the machine.
  request.limits.wall = std::chrono::minutes(10);
  return request;
}

// The message of a recipe that must fail.
inline std::string message_of(const std::string& source, const std::vector<std::string>& overrides = {}) {
  const RecipeFolder folder;
  folder.write("r.lua", source);
  const auto result = evaluate_recipe(request_for(folder.at("r.lua"), overrides));
  return result.ok() ? "no error" : folder.shown(result.error().text());
}

// The document of a recipe that must succeed; null after a failure.
inline ResolvedRecipe resolve(const std::string& source, const std::vector<std::string>& overrides = {}) {
  const RecipeFolder folder;
  folder.write("r.lua", source);
  auto result = evaluate_recipe(request_for(folder.at("r.lua"), overrides));
  EXPECT_TRUE(result.ok()) << result.error().text();
  if (!result.ok()) return {};
  for (auto& [pointer, place] : result->provenance) place = folder.shown(place);
  return std::move(*result);
}

// The smallest run with some of its fields replaced or added: "steps = 7".
inline std::string tiny_run(const std::string& fields = "", const std::string& before = "") {
  return "local t = require \"tenon\"\n" + before + "\nreturn t.run {\n" +
         "steps = 10, batch = 4, context = 8,\n"
         "model = t.models.mlp { layers = 1, width = 8, vocab = 256 },\n"
         "data = t.data.text { file = \"x\" },\n"
         "optim = t.optim.sgd { lr = 0.1 },\n" +
         fields + "\n}\n";
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace tenon
