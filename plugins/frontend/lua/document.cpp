// From the table that the vocabulary made to the document of tenon/frontend.h: canonical JSON with the place
// of every part.
#include <cmath>
#include <nlohmann/json.hpp>

#include "session.h"

namespace tenon::lua {
namespace {

using Json = nlohmann::json;
constexpr int kMaxDepth = 48;  // the reader refuses more than 64

std::string escaped(const std::string& key) {
  std::string out;
  for (const char c : key) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

bool valid_utf8(lua_State* L, int index) {
  size_t size = 0;
  const char* text = lua_tolstring(L, index, &size);
  try {
    (void)Json(std::string(text, size)).dump();
  } catch (const Json::exception&) {
    return false;
  }
  return true;
}

class Writer {
 public:
  explicit Writer(lua_State* L) : L_(L), session_(session_of(L)) {}

  // The value on top of the stack, which stays there. `place` is where the value was written.
  Json value(const std::string& pointer, const Place& place, int depth) {
    note(pointer, place);
    switch (lua_type(L_, -1)) {
      case LUA_TBOOLEAN: return lua_toboolean(L_, -1) != 0;
      case LUA_TNUMBER: return number(pointer, place);
      case LUA_TSTRING: return string(pointer, place);
      case LUA_TTABLE: return table(pointer, place, depth);
      default: fail(pointer, place, std::string("a ") + luaL_typename(L_, -1) + " cannot stand in a recipe");
    }
  }
  Json& provenance() { return provenance_; }

 private:
  [[noreturn]] void fail(const std::string& pointer, const Place& place, const std::string& why) {
    raise(L_, mistake_at(session_, place, "R003", pointer + ": " + why));
  }
  void note(const std::string& pointer, const Place& place) {
    if (place.file < 0) return;
    provenance_[pointer] = session_.files[static_cast<size_t>(place.file)]->path + ":" +
                           std::to_string(place.at.line) + ":" + std::to_string(place.at.column);
  }
  Json number(const std::string& pointer, const Place& place) {
    if (lua_isinteger(L_, -1) != 0) return static_cast<int64_t>(lua_tointeger(L_, -1));
    const double value = lua_tonumber(L_, -1);
    if (!std::isfinite(value)) fail(pointer, place, "the number is not finite");
    return value;
  }
  Json string(const std::string& pointer, const Place& place) {
    if (!valid_utf8(L_, -1)) fail(pointer, place, "the string is not UTF-8");
    return lua_tostring(L_, -1);
  }
  Json table(const std::string& pointer, const Place& place, int depth) {
    if (depth > kMaxDepth) fail(pointer, place, "tables are nested too deep, or contain themselves");
    luaL_checkstack(L_, 4, nullptr);
    const Origin* known = find_origin(L_, -1);
    Origin origin = known == nullptr ? Origin{} : *known;
    if (origin.self.file < 0) origin.self = place;
    const auto length = static_cast<size_t>(lua_rawlen(L_, -1));
    if (length > 0 || (is_empty() && origin.shape == Origin::Shape::inferred)) {
      return array(pointer, origin, length, depth);
    }
    return object(pointer, origin, depth);
  }
  // Where the value on top was made, if it is a table that knows.
  Place own_place(const Place& otherwise) {
    const Origin* known = lua_istable(L_, -1) ? find_origin(L_, -1) : nullptr;
    return known != nullptr && known->self.file >= 0 ? known->self : otherwise;
  }
  bool is_empty() {
    lua_pushnil(L_);
    if (lua_next(L_, -2) == 0) return true;
    lua_pop(L_, 2);
    return false;
  }
  Json array(const std::string& pointer, const Origin& origin, size_t length, int depth) {
    size_t entries = 0;
    for (lua_pushnil(L_); lua_next(L_, -2) != 0; lua_pop(L_, 1)) ++entries;
    if (entries != length) fail(pointer, origin.self, "a table is either a list or has names, not both");
    Json out = Json::array();
    for (size_t i = 0; i < length; ++i) {
      lua_rawgeti(L_, -1, static_cast<lua_Integer>(i) + 1);
      const Place place = i < origin.items.size() ? origin.items[i] : own_place(origin.self);
      out.push_back(value(pointer + "/" + std::to_string(i), place, depth + 1));
      lua_pop(L_, 1);
    }
    return out;
  }
  Json object(const std::string& pointer, const Origin& origin, int depth) {
    Json out = Json::object();
    for (lua_pushnil(L_); lua_next(L_, -2) != 0; lua_pop(L_, 1)) {
      if (lua_type(L_, -2) != LUA_TSTRING)
        fail(pointer, origin.self, "a key is neither a name nor a position");
      lua_pushvalue(L_, -2);
      const bool utf8 = valid_utf8(L_, -1);
      const std::string key = lua_tostring(L_, -1);
      lua_pop(L_, 1);
      if (!utf8) fail(pointer, origin.self, "a key is not UTF-8");
      const auto it = origin.keys.find(key);
      out[key] =
          value(pointer + "/" + escaped(key), it == origin.keys.end() ? origin.self : it->second, depth + 1);
    }
    return out;
  }

  lua_State* L_;
  const Session& session_;
  Json provenance_ = Json::object();
};

}  // namespace

std::string write_document(lua_State* L, int index) {
  Json out;
  index = lua_absindex(L, index);
  lua_getfield(L, index, "recipe");
  Writer recipe(L);
  const Origin* origin = find_origin(L, -1);
  out["recipe"] = recipe.value("", origin == nullptr ? Place{} : origin->self, 0);
  out["provenance"] = std::move(recipe.provenance());
  lua_pop(L, 1);
  lua_getfield(L, index, "parameters");
  Writer parameters(L);
  out["parameters"] = parameters.value("", {}, 0);
  lua_pop(L, 1);
  return out.dump();
}

}  // namespace tenon::lua
