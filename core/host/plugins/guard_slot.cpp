#include "host/plugins/guard_slot.h"

#include <fmt/format.h>

namespace tenon {
namespace {

void say(tenon_error* error, const std::string& text) {
  tenon_error mine{};
  mine.struct_size = sizeof mine;
  mine.code = TENON_E_INTERNAL;
  text.copy(mine.message, sizeof mine.message - 1);
  tenon_fill(error, &mine);
}

}  // namespace

tenon_code refuse_answer(tenon_error* error, const char* text) {
  say(error, text);
  return TENON_E_INTERNAL;
}

tenon_code refuse_code(tenon_error* error, tenon_code code) {
  say(error, fmt::format("answered {}, which is no code of this call", code));
  return TENON_E_INTERNAL;
}

}  // namespace tenon
