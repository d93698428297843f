#include "session.h"

#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <sstream>

namespace tenon::lua {
namespace {

// The name of the chunk in Lua's own messages: short, so that Lua never cuts it.
constexpr std::string_view kChunk = "tenon#";
std::string chunk_name(size_t file) { return "@" + std::string(kChunk) + std::to_string(file); }

// Cuts "tenon#12:34: " (chunk and line) from the front of a message.
std::string without_place(const std::string& message) {
  if (!message.starts_with(kChunk)) return message;
  size_t at = kChunk.size();
  for (int part = 0; part < 2; ++part) {
    const size_t begin = at;
    while (at < message.size() && std::isdigit(static_cast<unsigned char>(message[at])) != 0) ++at;
    if (at == begin || at >= message.size() || message[at] != ':') return message;
    ++at;
  }
  return at < message.size() && message[at] == ' ' ? message.substr(at + 1) : message;
}

// "tenon#12:34: near ..." -> 34; 0 if there is no such front.
int line_of_message(const std::string& message) {
  const size_t colon = message.find(':');
  return colon == std::string::npos ? 0 : std::atoi(message.c_str() + colon + 1);
}

// The name in Lua's "(local 'x')", "(field 'x')" ...; the text between the first quotes of a message.
std::string quoted_name(const std::string& message) {
  const size_t begin = message.find('\'');
  if (begin == std::string::npos) return "";
  const size_t end = message.find('\'', begin + 1);
  return end == std::string::npos ? "" : message.substr(begin + 1, end - begin - 1);
}

void push_field(lua_State* L, const char* key, const std::string& value) {
  lua_pushlstring(L, value.data(), value.size());
  lua_setfield(L, -2, key);
}

std::string get_field(lua_State* L, int index, const char* key) {
  lua_getfield(L, index, key);
  size_t size = 0;
  const char* text = lua_tolstring(L, -1, &size);
  std::string out = text == nullptr ? "" : std::string(text, size);
  lua_pop(L, 1);
  return out;
}

Mistake unreadable(const std::string& path, const std::string& why) {
  return {"R015", "cannot read '" + path + "': " + why, "", path, {}, ""};
}

std::string read_file(lua_State* L, const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) raise(L, unreadable(path, std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) raise(L, unreadable(path, "it is not a regular file"));
  if (static_cast<size_t>(info.st_size) > kMaxSource) {
    raise(L, unreadable(path, std::to_string(info.st_size) + " bytes, a recipe has at most 1 MiB"));
  }
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) raise(L, unreadable(path, "reading failed"));
  if (text.view().size() > kMaxSource) raise(L, unreadable(path, "more than 1 MiB"));
  if (text.view().starts_with(LUA_SIGNATURE)) {
    raise(L, unreadable(path, "it is compiled Lua; recipes are text"));
  }
  return text.str();
}

[[noreturn]] void raise_syntax(lua_State* L, int file) {
  const Session& session = session_of(L);
  const Source& source = session.files[static_cast<size_t>(file)]->source;
  const std::string text = lua_tostring(L, -1);
  const int line = line_of_message(text);
  const std::string message = without_place(text);
  const size_t near = message.rfind(" near ");
  const std::string token = near == std::string::npos ? "" : quoted_name(message.substr(near));
  const Position at = source.find_text(token, line);
  raise(L, mistake_at(session, {file, at}, "R011", message));
}

}  // namespace

Session& session_of(lua_State* L) { return **static_cast<Session**>(lua_getextraspace(L)); }

int file_of_chunk(const char* chunk) {
  const std::string_view name = chunk == nullptr ? "" : chunk;
  return name.starts_with("@tenon#") ? std::atoi(chunk + 1 + kChunk.size()) : -1;
}

Place calling_place(lua_State* L) {
  const Session& session = session_of(L);
  lua_Debug frame{};
  std::string callee;
  for (int level = 0; lua_getstack(L, level, &frame) == 1; ++level) {
    lua_getinfo(L, "Sln", &frame);
    const int file = file_of_chunk(frame.source);
    if (file >= 0 && session.files[static_cast<size_t>(file)]->user) {
      const Source& source = session.files[static_cast<size_t>(file)]->source;
      return {file, source.find_call(callee, frame.currentline)};
    }
    callee = frame.name == nullptr ? "" : frame.name;
  }
  return {};
}

Mistake mistake_at(const Session& session, const Place& place, std::string code, std::string message,
                   std::string hint) {
  Mistake out{std::move(code), std::move(message), std::move(hint), session.config->path, {}, ""};
  if (place.file < 0) return out;
  const File& file = *session.files[static_cast<size_t>(place.file)];
  out.file = file.path;
  out.at = place.at;
  out.source = file.source.line(place.at.line);
  return out;
}

Mistake out_of_memory(const Session& session) {
  return mistake_at(
      session, session.memory_place, "R014",
      "the recipe needs more than " + std::to_string(session.limits.memory >> 20) + " MiB of memory",
      "is there a loop that collects values without end?");
}

void push_mistake(lua_State* L, const Mistake& mistake) {
  luaL_checkstack(L, 3, nullptr);
  lua_createtable(L, 0, 7);
  push_field(L, "code", mistake.code);
  push_field(L, "message", mistake.message);
  push_field(L, "hint", mistake.hint);
  push_field(L, "file", mistake.file);
  push_field(L, "source", mistake.source);
  lua_pushinteger(L, mistake.at.line);
  lua_setfield(L, -2, "line");
  lua_pushinteger(L, mistake.at.column);
  lua_setfield(L, -2, "column");
  luaL_getmetatable(L, kMistakeKey);
  lua_setmetatable(L, -2);
}

void raise(lua_State* L, const Mistake& mistake) {
  push_mistake(L, mistake);
  lua_error(L);
  __builtin_unreachable();
}

Mistake mistake_from(lua_State* L, int index) {
  index = lua_absindex(L, index);
  const bool ours = lua_istable(L, index) && lua_getmetatable(L, index) != 0;
  if (ours) {
    luaL_getmetatable(L, kMistakeKey);
    const bool same = lua_rawequal(L, -1, -2) != 0;
    lua_pop(L, 2);
    if (same) {
      Mistake out{get_field(L, index, "code"),
                  get_field(L, index, "message"),
                  get_field(L, index, "hint"),
                  get_field(L, index, "file"),
                  {},
                  get_field(L, index, "source")};
      out.at.line = std::atoi(get_field(L, index, "line").c_str());
      out.at.column = std::atoi(get_field(L, index, "column").c_str());
      return out;
    }
  }
  size_t size = 0;
  const char* text = lua_tolstring(L, index, &size);
  const std::string message = text == nullptr ? std::string("the error is a ") + luaL_typename(L, index)
                                              : without_place(std::string(text, size));
  return mistake_at(session_of(L), {}, "R012", message);
}

int handle_error(lua_State* L) {
  const Session& session = session_of(L);
  Mistake mistake = mistake_from(L, 1);
  if (mistake.at.line == 0 && mistake.code == "R012") {
    Place place = calling_place(L);
    if (place.file >= 0) {
      const Source& source = session.files[static_cast<size_t>(place.file)]->source;
      const std::string name = quoted_name(mistake.message);
      if (!name.empty()) place.at = source.find_text(name, place.at.line);
    }
    mistake = mistake_at(session, place, "R012", mistake.message);
    if (mistake.message.find("stack overflow") != std::string::npos) {
      mistake.code = "R014";
      mistake.message = "calls are nested too deep (stack overflow)";
      mistake.hint = "does a function call itself without end?";
    }
  }
  push_mistake(L, mistake);
  return 1;
}

void set_origin(lua_State* L, int index, size_t origin) {
  index = lua_absindex(L, index);
  lua_getfield(L, LUA_REGISTRYINDEX, kOriginsKey);
  lua_pushvalue(L, index);
  lua_pushinteger(L, static_cast<lua_Integer>(origin) + 1);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

namespace {

// Index into Session::origins, or -1.
lua_Integer origin_index(lua_State* L, int index) {
  index = lua_absindex(L, index);
  lua_getfield(L, LUA_REGISTRYINDEX, kOriginsKey);
  lua_pushvalue(L, index);
  lua_rawget(L, -2);
  const lua_Integer found = lua_tointeger(L, -1) - 1;
  lua_pop(L, 2);
  return found;
}

}  // namespace

const Origin* find_origin(lua_State* L, int index) {
  const lua_Integer found = origin_index(L, index);
  return found < 0 ? nullptr : &session_of(L).origins[static_cast<size_t>(found)];
}

Origin& own_origin(lua_State* L, int index) {
  Session& session = session_of(L);
  const lua_Integer known = origin_index(L, index);
  if (known >= 0 && session.origins[static_cast<size_t>(known)].owned) {
    return session.origins[static_cast<size_t>(known)];
  }
  session.origins.push_back(known < 0 ? Origin{} : Origin(session.origins[static_cast<size_t>(known)]));
  session.origins.back().owned = true;
  set_origin(L, index, session.origins.size() - 1);
  return session.origins.back();
}

namespace {

// Where the parts of each constructor of a user's file stand.
void add_origins(Session& session, int file, const Source& source) {
  for (const Constructor& made : source.constructors()) {
    Origin origin;
    origin.self = {file, source.position_of(made.start)};
    for (const auto& [key, token] : made.keys) origin.keys[key] = {file, source.position_of(token)};
    for (const size_t token : made.items) origin.items.push_back({file, source.position_of(token)});
    session.origins.push_back(std::move(origin));
  }
}

// Leaves the chunk of the file on the stack, text only, with the environment of recipes.
void load_file(lua_State* L, const std::string& path, bool user) {
  Session& session = session_of(L);
  const int file = static_cast<int>(session.files.size());
  session.files.push_back(std::make_unique<File>(File{path, user, Source(read_file(L, path))}));
  const Source& source = session.files.back()->source;
  const std::string name = chunk_name(static_cast<size_t>(file));
  // The text as it is first: its syntax errors must not show our additions.
  if (luaL_loadbufferx(L, source.text().data(), source.text().size(), name.c_str(), "t") != LUA_OK) {
    raise_syntax(L, file);
  }
  lua_pop(L, 1);
  const size_t first = session.origins.size();
  if (user) add_origins(session, file, source);
  const std::string text = source.instrumented(user, first);
  if (luaL_loadbufferx(L, text.data(), text.size(), name.c_str(), "t") != LUA_OK) raise_syntax(L, file);
  lua_getfield(L, LUA_REGISTRYINDEX, kGlobalsKey);
  if (lua_setupvalue(L, -2, 1) == nullptr) lua_pop(L, 1);
}

}  // namespace

void run_file(lua_State* L, const std::string& path, bool user) {
  load_file(L, path, user);
  lua_getfield(L, LUA_REGISTRYINDEX, kTableKey);
  lua_getfield(L, LUA_REGISTRYINDEX, kValuesKey);
  lua_call(L, 2, 1);
}

}  // namespace tenon::lua
