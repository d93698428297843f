// Recipes in Lua. A first line "--! key=value ..." gives the parameters of a command line.
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/json.h"
#include "evaluate.h"
#include "fuzz.h"
#include "graph/recipe.h"

namespace tenon::fuzz {
namespace {

// A folder with the recipe alone, so that `require` finds no other file.
struct Folder {
  std::string path = "/tmp/tenon-fuzz-XXXXXX";
  Folder() {
    if (mkdtemp(path.data()) == nullptr) broken("no folder for the recipe");
  }
  ~Folder() {
    unlink(recipe().c_str());
    rmdir(path.c_str());
  }
  std::string recipe() const { return path + "/recipe.lua"; }
};

std::vector<std::pair<std::string, std::string>> overrides_of(std::string_view input) {
  std::vector<std::pair<std::string, std::string>> out;
  if (!input.starts_with("--!")) return out;
  std::istringstream words{std::string(input.substr(3, input.find('\n') - 3))};
  for (std::string word; words >> word;) {
    const size_t at = std::min(word.find('='), word.size());
    out.emplace_back(word.substr(0, at).c_str(), word.substr(std::min(at + 1, word.size())).c_str());
  }
  return out;
}

std::vector<Error> feed_lua(std::string_view input) {
  static const Folder folder;
  const std::string path = folder.recipe();
  std::ofstream(path, std::ios::binary) << input;
  const auto given = overrides_of(input);
  std::vector<tenon_override> overrides;
  for (const auto& [key, value] : given) overrides.push_back({key.c_str(), value.c_str()});
  const tenon_frontend_config config{sizeof config,
                                     static_cast<uint32_t>(overrides.size()),
                                     nullptr,
                                     path.c_str(),
                                     TENON_SOURCE_DIR "/scripts",
                                     overrides.data()};
  // Less than a recipe may have, so that inputs that reach a limit are cheap.
  const lua::Limits limits{.memory = size_t{8} << 20, .instructions = 300'000};
  lua::Spent spent;
  const auto document = parse_json(lua::evaluate(config, limits, &spent), "document");
  if (!document.ok()) broken("the document is no JSON: " + document.error().text());
  if (spent.peak_memory > limits.memory) broken("more memory than the limit");
  if (spent.instructions > limits.instructions + lua::kHookInterval)
    broken("more instructions than the limit");
  if (!document->contains("error")) {
    const auto recipe = read_recipe(document->at("recipe"));
    if (!recipe.ok() && recipe.error().code != "R005")
      broken("a recipe that cannot be read: " + recipe.error().text());
    return {};
  }
  const Json& error = document->at("error");
  return {Error{error.at("code"), error.at("message"), error.at("file"), error.at("hint"), TENON_E_RECIPE}};
}

}  // namespace

const Target& lua() {
  static const Target target{
      "lua",
      Form::bytes,
      feed_lua,
      {"R001", "R002", "R003", "R004", "R005", "R006", "R011", "R012", "R013", "R014", "R015", "R016"},
      {"lua/evaluate.cpp", "lua/session.cpp", "lua/sandbox.cpp", "lua/modules.cpp", "lua/names.cpp",
       "lua/primitives.cpp", "lua/document.cpp", "tenon/data.lua", "tenon/finish.lua", "tenon/graph.lua",
       "tenon/init.lua", "tenon/lr.lua", "tenon/mesh.lua", "tenon/nn.lua", "tenon/optim.lua",
       "tenon/params.lua", "tenon/plugin.lua", "tenon/run.lua", "tenon/schema.lua"}};
  return target;
}

}  // namespace tenon::fuzz
