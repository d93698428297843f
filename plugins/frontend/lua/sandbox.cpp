// What a recipe can reach: an allow-list of functions, each deterministic; strict names; limits.
#include <algorithm>
#include <cstdio>
#include <string>

#include "session.h"

namespace tenon::lua {
namespace {

// ---- functions that replace Lua's own ----

// Order of keys: false, true, numbers, strings.
int key_rank(lua_State* L, int index) {
  switch (lua_type(L, index)) {
    case LUA_TBOOLEAN: return lua_toboolean(L, index);
    case LUA_TNUMBER: return 2;
    case LUA_TSTRING: return 3;
    default: return luaL_error(L, "pairs: a key is a %s, which has no order", luaL_typename(L, index));
  }
}

struct Key {
  int rank;
  double number;
  std::string text;
  int slot;  // where the key stands in the list
};

// The keys of the table at 1, sorted, as a new list on the stack.
void push_sorted_keys(lua_State* L) {
  std::vector<Key> keys;
  lua_newtable(L);
  const int list = lua_gettop(L);
  for (lua_pushnil(L); lua_next(L, 1) != 0; lua_pop(L, 1)) {
    Key key{key_rank(L, -2), 0, "", static_cast<int>(keys.size()) + 1};
    if (key.rank == 2) key.number = lua_tonumber(L, -2);
    if (key.rank == 3) {
      size_t size = 0;
      const char* text = lua_tolstring(L, -2, &size);
      key.text.assign(text, size);
    }
    lua_pushvalue(L, -2);
    lua_rawseti(L, list, key.slot);
    keys.push_back(std::move(key));
  }
  std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
    if (a.rank != b.rank) return a.rank < b.rank;
    return a.rank == 2 ? a.number < b.number : a.text < b.text;
  });
  lua_createtable(L, static_cast<int>(keys.size()), 0);
  for (size_t i = 0; i < keys.size(); ++i) {
    lua_rawgeti(L, list, keys[i].slot);
    lua_rawseti(L, -2, static_cast<lua_Integer>(i) + 1);
  }
  lua_remove(L, list);
}

// Upvalues: table, sorted keys, position.
int next_sorted(lua_State* L) {
  for (;;) {
    const lua_Integer at = lua_tointeger(L, lua_upvalueindex(3)) + 1;
    lua_pushinteger(L, at);
    lua_replace(L, lua_upvalueindex(3));
    if (lua_rawgeti(L, lua_upvalueindex(2), at) == LUA_TNIL) return 1;
    lua_pushvalue(L, -1);
    if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) return 2;
    lua_pop(L, 2);  // removed while iterating
  }
}

int sorted_pairs(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  lua_pushvalue(L, 1);
  push_sorted_keys(L);
  lua_pushinteger(L, 0);
  lua_pushcclosure(L, trampoline<next_sorted>, 3);
  return 1;
}

// The text of a value without its address, which differs from run to run.
void push_text(lua_State* L, int index) {
  index = lua_absindex(L, index);
  const int type = lua_type(L, index);
  const bool address = type == LUA_TTABLE || type == LUA_TFUNCTION || type == LUA_TUSERDATA ||
                       type == LUA_TLIGHTUSERDATA || type == LUA_TTHREAD;
  if (address && luaL_getmetafield(L, index, "__tostring") == LUA_TNIL) {
    lua_pushstring(L, lua_typename(L, type));
    return;
  }
  if (address) lua_pop(L, 1);
  luaL_tolstring(L, index, nullptr);
}

int to_string(lua_State* L) {
  luaL_checkany(L, 1);
  push_text(L, 1);
  return 1;
}

// string.format without addresses; upvalue 1 is Lua's own.
int format(lua_State* L) {
  const std::string pattern = luaL_checkstring(L, 1);
  for (size_t at = pattern.find('%'); at != std::string::npos; at = pattern.find('%', at + 1)) {
    while (++at < pattern.size() &&
           std::string_view("-+ #0123456789.").find(pattern[at]) != std::string::npos) {
    }
    if (at < pattern.size() && pattern[at] == 'p')
      return luaL_error(L, "format: recipes have no addresses ('%%p')");
  }
  const int count = lua_gettop(L);
  for (int i = 2; i <= count; ++i) {
    const int type = lua_type(L, i);
    if (type == LUA_TSTRING || type == LUA_TNUMBER || type == LUA_TBOOLEAN || type == LUA_TNIL) continue;
    push_text(L, i);
    lua_replace(L, i);
  }
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, count, 1);
  return 1;
}

// Messages for the user; standard output carries the document.
int print(lua_State* L) {
  std::string line;
  for (int i = 1; i <= lua_gettop(L); ++i) {
    push_text(L, i);
    line += (i > 1 ? "\t" : "") + std::string(lua_tostring(L, -1));
    lua_pop(L, 1);
  }
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
  return 0;
}

// setmetatable without finalizers and weak tables: both show when the collector runs.
int set_metatable(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  if (!lua_isnil(L, 2)) luaL_checktype(L, 2, LUA_TTABLE);
  lua_settop(L, 2);
  if (lua_istable(L, 2)) {
    for (const char* key : {"__gc", "__mode"}) {
      lua_pushstring(L, key);
      if (lua_rawget(L, 2) != LUA_TNIL) return luaL_error(L, "setmetatable: recipes have no '%s'", key);
      lua_pop(L, 1);
    }
  }
  if (luaL_getmetafield(L, 1, "__metatable") != LUA_TNIL) {
    return luaL_error(L, "setmetatable: the metatable is protected");
  }
  lua_settop(L, 2);
  lua_setmetatable(L, 1);
  return 1;
}

// pcall that cannot swallow a limit.
int protected_call(lua_State* L) {
  luaL_checkany(L, 1);
  const int status = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
  Session& session = session_of(L);
  if (status == LUA_ERRMEM && !session.stopped) {
    session.stop = out_of_memory(session);
    session.stopped = true;
  }
  if (session.stopped) raise(L, session.stop);
  lua_pushboolean(L, status == LUA_OK ? 1 : 0);
  lua_insert(L, 1);
  return lua_gettop(L);
}

// ---- opening ----

// Copies the named functions of the library table on top of the stack into a new strict namespace, and
// makes it a global of recipes.
void allow(lua_State* L, const char* space, std::initializer_list<const char*> names) {
  lua_newtable(L);
  for (const char* name : names) {
    lua_getfield(L, -2, name);
    lua_setfield(L, -2, name);
  }
  lua_getfield(L, LUA_REGISTRYINDEX, kGlobalsKey);
  lua_pushvalue(L, -2);
  lua_setfield(L, -2, space);
  lua_pop(L, 1);
}

void make_strict(lua_State* L, const char* space) {
  lua_pushcfunction(L, trampoline<strict_table>);
  lua_insert(L, -2);
  lua_pushstring(L, space);
  lua_call(L, 2, 0);
  lua_pop(L, 1);  // the library
}

void open_libraries(lua_State* L) {
  luaL_requiref(L, LUA_STRLIBNAME, luaopen_string, 0);
  allow(L, "string",
        {"byte", "char", "find", "gmatch", "gsub", "len", "lower", "match", "rep", "reverse", "sub", "upper",
         "pack", "packsize", "unpack"});
  lua_getfield(L, -2, "format");
  lua_pushcclosure(L, trampoline<format>, 1);
  lua_setfield(L, -2, "format");
  lua_pushstring(L, "");  // methods of strings are the same functions
  lua_getmetatable(L, -1);
  lua_pushvalue(L, -3);
  lua_setfield(L, -2, "__index");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 2);
  make_strict(L, "string");
  luaL_requiref(L, LUA_TABLIBNAME, luaopen_table, 0);
  allow(L, "table", {"concat", "insert", "move", "pack", "remove", "unpack"});
  // Lua's own sort picks its pivot by the clock; tenon.sort is stable.
  lua_pushcfunction(L, trampoline<require_module>);
  lua_pushstring(L, "tenon.sort");
  lua_call(L, 1, 1);
  lua_setfield(L, -2, "sort");
  make_strict(L, "table");
  luaL_requiref(L, LUA_MATHLIBNAME, luaopen_math, 0);
  allow(L, "math", {"abs",  "acos", "asin", "atan", "ceil",       "cos",  "deg",        "exp",  "floor",
                    "fmod", "huge", "log",  "max",  "maxinteger", "min",  "mininteger", "modf", "pi",
                    "rad",  "sin",  "sqrt", "tan",  "tointeger",  "type", "ult"});
  make_strict(L, "math");
  luaL_requiref(L, LUA_UTF8LIBNAME, luaopen_utf8, 0);
  allow(L, "utf8", {"char", "charpattern", "codepoint", "codes", "len", "offset"});
  make_strict(L, "utf8");
}

int mistake_text(lua_State* L) {
  const Mistake mistake = mistake_from(L, 1);
  lua_pushstring(L, mistake.message.c_str());
  return 1;
}

// Called by instrumented chunks (source.h): (number, table) -> table, and (...) -> ... A recipe can call them
// by their names, too.
int mark_constructor(lua_State* L) {
  const lua_Integer number = luaL_checkinteger(L, 1);
  const bool known = number >= 0 && static_cast<size_t>(number) < session_of(L).origins.size();
  luaL_argcheck(L, known, 1, "no such constructor");
  luaL_checktype(L, 2, LUA_TTABLE);
  set_origin(L, 2, static_cast<size_t>(number));
  lua_settop(L, 2);
  return 1;
}

int pass_values(lua_State* L) { return lua_gettop(L); }

void open_registry(lua_State* L) {
  lua_newtable(L);  // origins: forgets tables that are gone
  lua_createtable(L, 0, 1);
  lua_pushstring(L, "k");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  lua_setfield(L, LUA_REGISTRYINDEX, kOriginsKey);
  lua_newtable(L);
  lua_setfield(L, LUA_REGISTRYINDEX, kLoadedKey);
  lua_newtable(L);
  lua_setfield(L, LUA_REGISTRYINDEX, kGlobalsKey);
  lua_pushcfunction(L, trampoline<mark_constructor>);
  lua_setfield(L, LUA_REGISTRYINDEX, kTableKey);
  lua_pushcfunction(L, pass_values);
  lua_setfield(L, LUA_REGISTRYINDEX, kValuesKey);
  luaL_newmetatable(L, kMistakeKey);
  lua_pushcfunction(L, trampoline<mistake_text>);
  lua_setfield(L, -2, "__tostring");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 1);
}

}  // namespace

void open_sandbox(lua_State* L) {
  open_registry(L);
  luaL_requiref(L, LUA_GNAME, luaopen_base, 0);
  lua_getfield(L, LUA_REGISTRYINDEX, kGlobalsKey);
  const int globals = lua_gettop(L);
  for (const char* name : {"assert", "error", "getmetatable", "ipairs", "rawequal", "rawget", "rawlen",
                           "rawset", "select", "tonumber", "type"}) {
    lua_getfield(L, globals - 1, name);
    lua_setfield(L, globals, name);
  }
  const luaL_Reg own[] = {{"pairs", trampoline<sorted_pairs>},
                          {"tostring", trampoline<to_string>},
                          {"print", trampoline<print>},
                          {"setmetatable", trampoline<set_metatable>},
                          {"pcall", trampoline<protected_call>},
                          {"require", trampoline<require_module>},
                          {nullptr, nullptr}};
  luaL_setfuncs(L, own, 0);
  lua_getfield(L, LUA_REGISTRYINDEX, kLoadedKey);
  open_primitives(L);
  lua_setfield(L, -2, "tenon.core");
  lua_pop(L, 1);
  open_libraries(L);
  lua_settop(L, globals);
  make_globals_strict(L);
  lua_settop(L, globals - 2);
}

}  // namespace tenon::lua
