// frontend/lua: recipes written in Lua 5.4, as a plugin.
#include "evaluate.h"
#include "tenon_sdk/plugin.hpp"

namespace tenon::lua {
namespace {

tenon_code evaluate_slot(const tenon_frontend_config* config, void (*emit)(void*, const char*, uint64_t),
                         void* arg, tenon_error* error) {
  return sdk::guard(error, [&] {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): the size of the pointer itself is meant
    if (!TENON_HAS(config, tenon_frontend_config, overrides) || config->path == nullptr ||
        config->library == nullptr || emit == nullptr) {
      throw sdk::Failure(TENON_E_ARGUMENT, "frontend/lua: path, library and emit are needed");
    }
    const std::string document = evaluate(*config);
    emit(arg, document.data(), document.size());
  });
}

constexpr tenon_frontend kFrontend{sizeof(tenon_frontend), 0, evaluate_slot};

}  // namespace
}  // namespace tenon::lua

extern "C" const tenon_plugin tenon_plugin_v0 =
    tenon::sdk::plugin_with<TENON_FRONTEND, tenon::lua::kFrontend>("frontend/lua", "0.1.0",
                                                                   "Recipes written in Lua");
