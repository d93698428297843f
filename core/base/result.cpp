#include "base/result.h"

#include <cstring>

namespace tenon {

std::string Error::text() const {
  std::string out = "error[" + code + "]: " + cause;
  if (!place.empty()) out += "\n  --> " + place;
  if (!fix.empty()) out += "\n  fix: " + fix;
  return out;
}

namespace {

const char* default_code(tenon_code kind) {
  switch (kind) {
    case TENON_E_ARGUMENT: return "A010";
    case TENON_E_UNSUPPORTED: return "A011";
    case TENON_E_MEMORY: return "E010";
    case TENON_E_IO: return "E011";
    case TENON_E_TIMEOUT: return "W010";
    case TENON_E_ABORTED: return "W011";
    case TENON_E_PEER: return "W012";
    case TENON_E_DEVICE: return "E012";
    case TENON_E_VERSION: return "A001";
    default: return "A012";
  }
}

// The text, of which the cause is cut first: place and fix say whose words it is.
std::string text_within(const Error& error, size_t room) {
  std::string text = error.text();
  if (text.size() <= room) return text;
  const size_t excess = text.size() - room + 3;
  if (excess >= error.cause.size()) return text;
  Error shorter = error;
  shorter.cause.resize(error.cause.size() - excess);
  shorter.cause += "...";
  return shorter.text();
}

}  // namespace

Error from_abi(tenon_code code, const tenon_error& error, const std::string& who) {
  const bool known = code < 0 && code >= TENON_E_CHECKPOINT;
  const tenon_code kind = known ? code : TENON_E_INTERNAL;
  std::string message(error.message, strnlen(error.message, sizeof(error.message)));
  if (message.empty()) message = "failed with code " + std::to_string(code) + " and said nothing";
  if (!known && error.message[0] != '\0') message += " (code " + std::to_string(code) + ", which none is)";
  if (error.vendor[0] != '\0') {
    const std::string vendor(error.vendor, strnlen(error.vendor, sizeof(error.vendor)));
    message += " (" + vendor + " " + std::to_string(error.vendor_code) + ")";
  }
  return Error{default_code(kind), message, who, "", kind};
}

tenon_code to_abi(const Error& error, tenon_error* out) {
  const tenon_code kind = error.kind < 0 ? error.kind : TENON_E_UNKNOWN;
  tenon_error mine = empty_abi_error();
  mine.code = kind;
  text_within(error, sizeof(mine.message) - 1).copy(mine.message, sizeof(mine.message) - 1);
  tenon_fill(out, &mine);
  return kind;
}

tenon_error empty_abi_error() {
  tenon_error error{};
  error.struct_size = sizeof(tenon_error);
  return error;
}

}  // namespace tenon
