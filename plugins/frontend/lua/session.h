// What one evaluation keeps beside the Lua state: the files, where tables were written, the limits. Reached
// from any Lua state through its extra space; lives as long as the state.
#pragma once

#include <cstdint>
#include <lua.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "evaluate.h"
#include "source.h"
#include "tenon/frontend.h"

namespace tenon::lua {

constexpr size_t kMaxSource = size_t{1} << 20;

// A mistake in the recipe, as the document reports it (tenon/frontend.h).
struct Mistake {
  std::string code, message, hint;
  std::string file;
  Position at;
  std::string source;  // the line
};

struct Place {
  int file = -1;  // index into Session::files
  Position at;
};

// Where the parts of one table were written. Tables made by the vocabulary get one of their own.
struct Origin {
  Place self;
  std::map<std::string, Place> keys;
  std::vector<Place> items;
  enum class Shape { inferred, object } shape = Shape::inferred;
  bool owned = false;  // by one table; false: shared by all tables of one constructor
};

struct File {
  std::string path;  // as messages show it
  bool user;         // the recipe or a module next to it; not the vocabulary
  Source source;
};

struct Session {
  const tenon_frontend_config* config = nullptr;
  Limits limits;
  std::string folder;   // of the recipe
  std::string library;  // of the vocabulary
  std::vector<std::unique_ptr<File>> files;
  std::vector<Place> places;    // what Lua code holds as an integer: index + 1
  std::vector<Origin> origins;  // what the table of origins (in the registry) holds: index + 1
  int64_t instructions = 0;
  size_t memory = 0, peak_memory = 0;
  // Once a limit is hit, no pcall may go on: the mistake is raised again until it gets out.
  bool stopped = false;
  Mistake stop;
  Place memory_place;    // where memory was last refused
  std::string document;  // the result
};

Session& session_of(lua_State* L);

// Runs F, which may throw std::exception or raise a Lua error, and makes Lua errors of exceptions. Lua's
// own exceptions (of another type) pass through untouched.
template <int (*F)(lua_State*)>
int trampoline(lua_State* L) {
  try {
    return F(L);
  } catch (const std::exception& e) {
    lua_pushstring(L, e.what());
  }
  return lua_error(L);
}

// The index of the file that a chunk name (lua_Debug::source) stands for, or -1.
int file_of_chunk(const char* chunk);
// The innermost frame that belongs to a file of the user; file -1 when a tail call has removed it. The
// column is that of the call that this frame makes.
Place calling_place(lua_State* L);
Mistake mistake_at(const Session& session, const Place& place, std::string code, std::string message,
                   std::string hint = "");

Mistake out_of_memory(const Session& session);

// The mistake as an error value: a table that only the front end can make. raise() throws it.
void push_mistake(lua_State* L, const Mistake& mistake);
[[noreturn]] void raise(lua_State* L, const Mistake& mistake);
// The mistake in the error value at `index`; anything else than our table becomes R012 with its text.
Mistake mistake_from(lua_State* L, int index);
// Message handler of lua_pcall: replaces a plain message by a mistake with its place.
int handle_error(lua_State* L);

// Origins. `index` is a table on the stack.
void set_origin(lua_State* L, int index, size_t origin);
// NULL when nothing is known about the table.
const Origin* find_origin(lua_State* L, int index);
// The table's own origin, made (as a copy of what it shared) when it has none of its own.
Origin& own_origin(lua_State* L, int index);

// Runs the file (text only) in the environment of recipes and leaves the one value that it returns on the
// stack. User files are instrumented (source.h). Raises R011 (syntax) or R015 (not readable).
void run_file(lua_State* L, const std::string& path, bool user);

// Registry keys.
constexpr const char* kOriginsKey = "tenon.origins";
constexpr const char* kMistakeKey = "tenon.mistake";
constexpr const char* kGlobalsKey = "tenon.globals";
constexpr const char* kLoadedKey = "tenon.loaded";
constexpr const char* kTableKey = "tenon.table";
constexpr const char* kValuesKey = "tenon.values";

// sandbox.cpp: fills a fresh state. primitives.cpp: pushes the module tenon.core.
void open_sandbox(lua_State* L);
int open_primitives(lua_State* L);
// modules.cpp: require(name).
int require_module(lua_State* L);
// names.cpp: strict(table, name) makes reading a missing key, or adding one, an error that names the table;
// the other does it for the table of globals on top of the stack.
int strict_table(lua_State* L);
void make_globals_strict(lua_State* L);
// document.cpp: the table at `index` as the canonical text of {"recipe", "provenance", "parameters"}.
std::string write_document(lua_State* L, int index);

}  // namespace tenon::lua
