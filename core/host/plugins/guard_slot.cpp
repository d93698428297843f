#include "host/plugins/guard_slot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tenon {
namespace {

void say(tenon_error* error, const std::string& text) {
  if (error == nullptr) return;
  const size_t n = std::min(text.size(), sizeof error->message - 1);
  std::memcpy(error->message, text.data(), n);
  error->message[n] = '\0';
  error->vendor[0] = '\0';
}

}  // namespace

tenon_code refuse_answer(tenon_error* error, const char* text) {
  say(error, text);
  return TENON_E_INTERNAL;
}

tenon_code refuse_code(tenon_error* error, tenon_code code) {
  say(error, fmt::format("answered {}, which is no code", code));
  return TENON_E_INTERNAL;
}

}  // namespace tenon
