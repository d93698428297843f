// Strict names: a global or a field that does not exist is an error with its place and what was meant.
#include <algorithm>
#include <string>

#include "session.h"
#include "tenon_sdk/suggest.hpp"

namespace tenon::lua {
namespace {

std::vector<std::string> keys_of(lua_State* L, int index) {
  std::vector<std::string> out;
  index = lua_absindex(L, index);
  for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) == LUA_TSTRING) out.emplace_back(lua_tostring(L, -2));
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string meant(const std::string& name, const std::vector<std::string>& candidates) {
  for (const std::string& candidate : candidates) {  // `lr` for `p.lr`
    if (candidate.ends_with("." + name)) return "did you mean '" + candidate + "'?";
  }
  return sdk::did_you_mean(name, candidates);
}

std::string key_text(lua_State* L, int index) {
  return lua_type(L, index) == LUA_TSTRING ? lua_tostring(L, index) : luaL_typename(L, index);
}

Place place_of_name(lua_State* L, const std::string& name, bool variable) {
  Place place = calling_place(L);
  if (place.file < 0) return place;
  const Source& source = session_of(L).files[static_cast<size_t>(place.file)]->source;
  const int line = place.at.line;
  place.at = variable ? source.find_variable(name, line) : source.find_text(name, line);
  return place;
}

// Absent on purpose: says what to do instead.
std::string why_absent(const std::string& name) {
  static const std::map<std::string, std::string> reasons{
      {"io", "a recipe reads and writes no files"},
      {"os", "a recipe must not depend on the machine or the time"},
      {"debug", "recipes have no debug library"},
      {"load", "recipes load code with require only"},
      {"loadstring", "recipes load code with require only"},
      {"loadfile", "recipes load code with require only"},
      {"dofile", "recipes load code with require only"},
      {"package", "require looks at tenon's vocabulary and next to the recipe"},
      {"next", "use pairs, which goes in sorted order"},
      {"collectgarbage", "recipes do not control memory"},
      {"coroutine", "recipes have no coroutines"},
  };
  const auto it = reasons.find(name);
  return it == reasons.end() ? "" : it->second;
}

int read_unknown_global(lua_State* L) {
  const std::string name = key_text(L, 2);
  const Place place = place_of_name(L, name, true);
  std::string hint = why_absent(name);
  if (hint.empty()) {
    std::vector<std::string> candidates = keys_of(L, 1);
    if (place.file >= 0) {
      const auto locals = session_of(L).files[static_cast<size_t>(place.file)]->source.local_names();
      candidates.insert(candidates.begin(), locals.begin(), locals.end());
    }
    hint = meant(name, candidates);
  }
  raise(L, mistake_at(session_of(L), place, "R001", "global '" + name + "' is not defined", hint));
}

int write_global(lua_State* L) {
  const std::string name = key_text(L, 2);
  raise(L, mistake_at(session_of(L), place_of_name(L, name, true), "R001",
                      "recipes have no globals: '" + name + "' is not a local variable",
                      "write 'local " + name + " = ...'"));
}

// __index of a namespace; upvalue 1 is its name.
int read_unknown_field(lua_State* L) {
  const std::string space = lua_tostring(L, lua_upvalueindex(1));
  const std::string name = key_text(L, 2);
  const std::vector<std::string> keys = keys_of(L, 1);
  std::string hint = meant(name, keys);
  if (hint.empty() && !keys.empty()) {
    hint = "it has:";
    for (const std::string& key : keys) hint += " " + key;
  }
  raise(L, mistake_at(session_of(L), place_of_name(L, name, false), "R001", space + " has no '" + name + "'",
                      hint));
}

int write_field(lua_State* L) {
  const std::string space = lua_tostring(L, lua_upvalueindex(1));
  const std::string name = key_text(L, 2);
  raise(L, mistake_at(session_of(L), place_of_name(L, name, false), "R001",
                      space + " is fixed: '" + name + "' cannot be added", ""));
}

}  // namespace

int strict_table(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const char* name = luaL_checkstring(L, 2);
  lua_createtable(L, 0, 3);
  lua_pushstring(L, name);
  lua_pushcclosure(L, trampoline<read_unknown_field>, 1);
  lua_setfield(L, -2, "__index");
  lua_pushstring(L, name);
  lua_pushcclosure(L, trampoline<write_field>, 1);
  lua_setfield(L, -2, "__newindex");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, 1);
  lua_settop(L, 1);
  return 1;
}

void make_globals_strict(lua_State* L) {
  lua_createtable(L, 0, 3);
  lua_pushcfunction(L, trampoline<read_unknown_global>);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, trampoline<write_global>);
  lua_setfield(L, -2, "__newindex");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
}

}  // namespace tenon::lua
