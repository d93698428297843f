// Text that foreign code gives: whether it is any.
#pragma once

#include <cstddef>
#include <string>

namespace tenon {

// Whether `text` ends within `most` bytes and is UTF-8 without control characters (tabs and line ends are
// fine). NULL is no text. Reads no further than the first byte that is not.
bool is_text(const char* text, size_t most = 4096);

// For a message: `text` as it is, or what is wrong with it in brackets.
std::string shown_text(const char* text);

}  // namespace tenon
