// Evaluates a recipe written in Lua 5.4. One fresh state per evaluation, bounded in memory and instructions;
// the process around it (tenon-recipe) bounds what Lua cannot (time inside one C function).
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "session.h"
#include "tenon_sdk/plugin.hpp"

namespace tenon::lua {
namespace {

// The innermost user line, for a limit. Reads only what the running frames hold: safe inside the allocator.
Place running_place(lua_State* L) {
  const Session& session = session_of(L);
  lua_Debug frame{};
  for (int level = 0; lua_getstack(L, level, &frame) == 1; ++level) {
    lua_getinfo(L, "Sl", &frame);
    const int file = file_of_chunk(frame.source);
    if (file < 0 || !session.files[static_cast<size_t>(file)]->user) continue;
    return {file, session.files[static_cast<size_t>(file)]->source.find_text("", frame.currentline)};
  }
  return {};
}

void stop(lua_State* L, const std::string& message, const std::string& hint) {
  Session& session = session_of(L);
  if (session.stopped) return;
  session.stop = mistake_at(session, running_place(L), "R014", message, hint);
  session.stopped = true;
}

struct Budget {
  Session* session = nullptr;
  lua_State* L = nullptr;
};

void* allocate(void* arg, void* old, size_t old_size, size_t size) {
  const auto* budget = static_cast<Budget*>(arg);
  Session& session = *budget->session;
  if (old == nullptr) old_size = 0;  // Lua passes a type tag here
  if (size == 0) {
    std::free(old);
    session.memory -= old_size;
    return nullptr;
  }
  if (size > old_size && session.memory + (size - old_size) > session.limits.memory) {
    // Lua collects garbage and tries once more, so this is not yet the end.
    if (budget->L != nullptr) session.memory_place = running_place(budget->L);
    return nullptr;
  }
  void* out = std::realloc(old, size);
  if (out != nullptr) session.memory += size - old_size;
  session.peak_memory = std::max(session.peak_memory, session.memory);
  return out;
}

void count_instructions(lua_State* L, lua_Debug*) {
  Session& session = session_of(L);
  session.instructions += kHookInterval;
  if (session.instructions > session.limits.instructions) {
    stop(L,
         "the recipe takes too long: more than " + std::to_string(session.limits.instructions / 1'000'000) +
             " million instructions",
         "is there a loop without end?");
  }
  if (session.stopped) raise(L, session.stop);
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Runs the recipe and the vocabulary's last step, and writes the document.
int evaluate_protected(lua_State* L) {
  Session& session = session_of(L);
  open_sandbox(L);
  lua_sethook(L, count_instructions, LUA_MASKCOUNT, kHookInterval);
  run_file(L, session.config->path, true);
  lua_getfield(L, LUA_REGISTRYINDEX, kGlobalsKey);
  lua_getfield(L, -1, "require");
  lua_pushstring(L, "tenon.finish");
  lua_call(L, 1, 1);
  lua_pushvalue(L, -3);
  lua_call(L, 1, 1);
  session.document = write_document(L, -1);
  return 0;
}

std::string error_document(const Mistake& mistake) {
  const nlohmann::json out{{"error",
                            {{"code", mistake.code},
                             {"file", mistake.file},
                             {"line", mistake.at.line},
                             {"column", mistake.at.column},
                             {"message", mistake.message},
                             {"hint", mistake.hint},
                             {"source", mistake.source}}}};
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

struct Closer {
  void operator()(lua_State* L) const { lua_close(L); }
};

// What runs in the state, as a document.
std::string run_protected(lua_State* L, Session& session) {
  lua_pushcfunction(L, handle_error);
  lua_pushcfunction(L, trampoline<evaluate_protected>);
  const int status = lua_pcall(L, 0, 0, 1);
  if (session.stopped) return error_document(session.stop);
  if (status == LUA_OK) return std::move(session.document);
  if (status == LUA_ERRMEM) return error_document(out_of_memory(session));
  return error_document(mistake_from(L, -1));
}

}  // namespace

std::string evaluate(const tenon_frontend_config& config, const Limits& limits, Spent* spent) {
  Session session;
  session.config = &config;
  session.limits = limits;
  session.folder = folder_of(config.path);
  session.library = config.library;
  Budget budget{&session, nullptr};
  const std::unique_ptr<lua_State, Closer> state(lua_newstate(allocate, &budget));
  lua_State* L = state.get();
  if (L == nullptr) throw sdk::Failure(TENON_E_MEMORY, "no memory for a Lua state");
  budget.L = L;
  *static_cast<Session**>(lua_getextraspace(L)) = &session;
  std::string document = run_protected(L, session);
  if (spent != nullptr) *spent = {session.peak_memory, session.instructions};
  return document;
}

}  // namespace tenon::lua
