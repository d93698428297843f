// The module tenon.core: what the vocabulary (scripts/tenon/*.lua) needs and Lua cannot say. A place is an
// integer here, nil when unknown.
#include <algorithm>
#include <cctype>
#include <filesystem>

#include "session.h"
#include "tenon_sdk/suggest.hpp"

namespace tenon::lua {
namespace {

void push_place(lua_State* L, const Place& place) {
  Session& session = session_of(L);
  if (place.file < 0) {
    lua_pushnil(L);
    return;
  }
  session.places.push_back(place);
  lua_pushinteger(L, static_cast<lua_Integer>(session.places.size()));
}

Place place_at(lua_State* L, int index) {
  const Session& session = session_of(L);
  const lua_Integer number = lua_tointeger(L, index);
  if (number < 1 || static_cast<size_t>(number) > session.places.size()) return {};
  return session.places[static_cast<size_t>(number) - 1];
}

const Place* place_of_key(lua_State* L, const Origin& origin, int key) {
  if (lua_type(L, key) == LUA_TSTRING) {
    const auto it = origin.keys.find(lua_tostring(L, key));
    if (it != origin.keys.end()) return &it->second;
  } else if (lua_isinteger(L, key) != 0) {
    const lua_Integer n = lua_tointeger(L, key);
    if (n >= 1 && static_cast<size_t>(n) <= origin.items.size())
      return &origin.items[static_cast<size_t>(n) - 1];
  }
  return nullptr;
}

// place(table, [key]): where the key was written, else the table; nil if neither is known.
int place(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const Origin* origin = find_origin(L, 1);
  if (origin == nullptr) return 0;
  const Place* found = lua_isnoneornil(L, 2) ? nullptr : place_of_key(L, *origin, 2);
  push_place(L, found != nullptr ? *found : origin->self);
  return 1;
}

// mark(table, key or nil, place): says where a key (or the table) comes from. A nil place changes nothing.
int mark(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const Place where = place_at(L, 3);
  if (where.file < 0) return 0;
  Origin& origin = own_origin(L, 1);
  if (lua_isnil(L, 2)) {
    origin.self = where;
  } else if (lua_isinteger(L, 2) != 0) {
    const auto n = static_cast<size_t>(luaL_checkinteger(L, 2));
    luaL_argcheck(L, n >= 1 && n <= (size_t{1} << 20), 2, "position out of range");
    if (origin.items.size() < n) origin.items.resize(n, origin.self);
    origin.items[n - 1] = where;
  } else {
    origin.keys[luaL_checkstring(L, 2)] = where;
  }
  return 0;
}

// inherit(made, given): `made` stands where `given` was written, key by key. Returns `made`.
int inherit(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  luaL_checktype(L, 2, LUA_TTABLE);
  if (const Origin* given = find_origin(L, 2)) {
    Origin copy = *given;
    copy.owned = true;
    copy.shape = Origin::Shape::inferred;
    own_origin(L, 1) = std::move(copy);
  }
  lua_settop(L, 1);
  return 1;
}

// object(table): is written as {} when empty, not as []. Returns the table.
int object(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  own_origin(L, 1).shape = Origin::Shape::object;
  lua_settop(L, 1);
  return 1;
}

// caller(): the place in the user's file that is being evaluated.
int caller(lua_State* L) {
  push_place(L, calling_place(L));
  return 1;
}

// fail(code, message, [hint], [place]): ends the evaluation; without a place, at the caller.
int fail(lua_State* L) {
  Place where = place_at(L, 4);
  if (where.file < 0) where = calling_place(L);
  raise(L, mistake_at(session_of(L), where, luaL_checkstring(L, 1), luaL_checkstring(L, 2),
                      luaL_optstring(L, 3, "")));
}

// closest(name, list): the candidate that was meant, or nil.
int closest_of(lua_State* L) {
  const std::string name = luaL_checkstring(L, 1);
  std::vector<std::string> candidates;
  const lua_Integer count = luaL_len(L, 2);
  for (lua_Integer i = 1; i <= count; ++i) {
    lua_rawgeti(L, 2, i);
    candidates.emplace_back(luaL_checkstring(L, -1));
    lua_pop(L, 1);
  }
  const std::string found = sdk::closest(name, candidates);
  if (found.empty()) return 0;
  lua_pushstring(L, found.c_str());
  return 1;
}

// overrides(): {{key, value}, ...} as given on the command line, both strings.
int overrides(lua_State* L) {
  const tenon_frontend_config& config = *session_of(L).config;
  lua_createtable(L, static_cast<int>(config.num_overrides), 0);
  for (uint32_t i = 0; i < config.num_overrides; ++i) {
    lua_createtable(L, 2, 0);
    lua_pushstring(L, config.overrides[i].key);
    lua_rawseti(L, -2, 1);
    lua_pushstring(L, config.overrides[i].value);
    lua_rawseti(L, -2, 2);
    lua_rawseti(L, -2, static_cast<lua_Integer>(i) + 1);
  }
  return 1;
}

// from_here(path): a path that starts at the current folder, such as one from the command line, made
// absolute.
int from_here(lua_State* L) {
  const auto path = std::filesystem::absolute(luaL_checkstring(L, 1));
  lua_pushstring(L, path.lexically_normal().c_str());
  return 1;
}

// stem(): the recipe's file name without folder and ending, as runs may be called: '-' for what they may not
// have, and nothing in front that they may not begin with.
int stem(lua_State* L) {
  constexpr size_t kLongest = 64;
  std::string name = std::filesystem::path(session_of(L).config->path).stem();
  const auto plain = [](unsigned char c) { return c < 0x80 && std::isalnum(c) != 0; };
  name.erase(name.begin(), std::ranges::find_if(name, plain));
  for (char& c : name)
    if (!plain(static_cast<unsigned char>(c)) && c != '.' && c != '_') c = '-';
  lua_pushstring(L, name.empty() ? "recipe" : name.substr(0, kLongest).c_str());
  return 1;
}

// last_return(): where the recipe returns.
int last_return(lua_State* L) {
  const Session& session = session_of(L);
  for (size_t i = 0; i < session.files.size(); ++i) {
    if (session.files[i]->path != session.config->path) continue;
    push_place(L, {static_cast<int>(i), session.files[i]->source.find_last_return()});
    return 1;
  }
  return 0;
}

}  // namespace

int open_primitives(lua_State* L) {
  const luaL_Reg functions[] = {{"place", trampoline<place>},
                                {"mark", trampoline<mark>},
                                {"inherit", trampoline<inherit>},
                                {"object", trampoline<object>},
                                {"caller", trampoline<caller>},
                                {"fail", trampoline<fail>},
                                {"closest", trampoline<closest_of>},
                                {"overrides", trampoline<overrides>},
                                {"stem", trampoline<stem>},
                                {"last_return", trampoline<last_return>},
                                {"strict", trampoline<strict_table>},
                                {"from_here", trampoline<from_here>},
                                {nullptr, nullptr}};
  luaL_newlib(L, functions);
  return 1;
}

}  // namespace tenon::lua
