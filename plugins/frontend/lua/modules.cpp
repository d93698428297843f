// require: tenon's vocabulary, and modules next to the recipe.
#include <sys/stat.h>

#include <string>

#include "session.h"

namespace tenon::lua {
namespace {

bool good_module_name(const std::string& name) {
  bool start = true;
  for (const char c : name) {
    const bool word = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
    if (!word && (c != '.' || start)) return false;
    start = c == '.';
  }
  return !name.empty() && !start;
}

bool exists(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

[[noreturn]] void raise_module(lua_State* L, const std::string& message, const std::string& hint) {
  raise(L, mistake_at(session_of(L), calling_place(L), "R015", message, hint));
}

std::string find_module(lua_State* L, const std::string& name, bool& user) {
  const Session& session = session_of(L);
  user = name != "tenon" && !name.starts_with("tenon.");
  std::string path = (user ? session.folder : session.library) + "/";
  for (const char c : name) path += c == '.' ? '/' : c;
  for (const char* end : {".lua", "/init.lua"}) {
    if (exists(path + end)) return path + end;
  }
  raise_module(L, "module '" + name + "' is not there: no " + path + ".lua",
               user ? "require reads tenon's vocabulary and files next to the recipe" : "");
}

}  // namespace

int require_module(lua_State* L) {
  const std::string name = luaL_checkstring(L, 1);
  lua_settop(L, 1);
  lua_getfield(L, LUA_REGISTRYINDEX, kLoadedKey);  // at 2
  lua_getfield(L, 2, name.c_str());
  if (lua_isboolean(L, -1)) raise_module(L, "module '" + name + "' requires itself", "");
  if (!lua_isnil(L, -1)) return 1;
  if (!good_module_name(name)) {
    raise_module(L, "'" + name + "' is not a module name",
                 "names like 'model' or 'parts.block', without paths");
  }
  bool user = false;
  const std::string path = find_module(L, name, user);
  lua_pushboolean(L, 1);
  lua_setfield(L, 2, name.c_str());
  run_file(L, path, user);
  if (lua_isnil(L, -1) || lua_isboolean(L, -1)) raise_module(L, "module '" + name + "' returns nothing", "");
  lua_pushvalue(L, -1);
  lua_setfield(L, 2, name.c_str());
  return 1;
}

}  // namespace tenon::lua
