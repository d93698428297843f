// JSON documents and strict access to them: every read names the path that was wrong.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tenon {

// Ordered by key, so that dump() is canonical.
using Json = nlohmann::json;

// Refuses duplicate keys, depth over 64 and trailing text. `place` goes into the error.
Result<Json> parse_json(const std::string& text, const std::string& place);
// Canonical text: sorted keys, no spaces, shortest numbers that read back the same.
std::string canonical(const Json& document);
// The same for output, in which words of others may stand: bytes that are no UTF-8 are replaced, where
// canonical() throws.
std::string printable(const Json& document);
// What an exception of the JSON library says, without its own name for it.
std::string without_name(std::string_view message);

}  // namespace tenon
