#include "base/text.h"

#include <cstdint>

namespace tenon {
namespace {

// Bytes of the UTF-8 sequence that begins with `lead`; 0: none does.
size_t sequence_length(uint8_t lead) {
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : (lead == '\n' || lead == '\t' ? 1 : 0);
  if (lead >= 0xc2 && lead < 0xe0) return 2;
  if (lead >= 0xe0 && lead < 0xf0) return 3;
  return lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
}

// Of the second byte, which keeps overlong forms, surrogates and numbers beyond Unicode out.
bool second_fits(uint8_t lead, uint8_t second) {
  if (lead == 0xe0) return second >= 0xa0;
  if (lead == 0xed) return second < 0xa0;
  if (lead == 0xf0) return second >= 0x90;
  return lead != 0xf4 || second < 0x90;
}

}  // namespace

bool is_text(const char* text, size_t most) {
  if (text == nullptr) return false;
  const auto at = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  for (size_t i = 0; i < most;) {
    const uint8_t lead = at(i);
    if (lead == 0) return true;
    const size_t length = sequence_length(lead);
    if (length == 0) return false;
    for (size_t k = 1; k < length; ++k) {
      const uint8_t next = at(i + k);
      if ((next & 0xc0) != 0x80 || (k == 1 && !second_fits(lead, next))) return false;
    }
    i += length;
  }
  return false;
}

std::string shown_text(const char* text) {
  if (text == nullptr) return "(NULL)";
  return is_text(text) ? "'" + std::string(text) + "'" : "(no text: not UTF-8, or without an end)";
}

}  // namespace tenon
