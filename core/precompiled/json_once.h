// nlohmann::json, whose code is generated once, in json_once.cpp, instead of in every file that uses it.
#pragma once

// The literal "..."_json, which nobody here uses, calls the parser in its body, and so every file that loads
// the header would make the parser's templates anew, used or not (0.5 s of each). As a template it waits for
// a caller.
#define JSON_USE_GLOBAL_UDLS 0
#define _json(...)             \
  _never_defined(__VA_ARGS__); \
  template <typename Unused>   \
  nlohmann::json parse_literal(__VA_ARGS__)
#include <nlohmann/json.hpp>
#undef _json

#include <string>

namespace nlohmann::detail {
using TextInput = iterator_input_adapter<std::string::const_iterator>;
using PointerInput = iterator_input_adapter<const char*>;
}  // namespace nlohmann::detail

// `EXTERN` is `extern` where the code is only used, and nothing where it is generated.
#define TENON_JSON_TEMPLATES(EXTERN)                \
  namespace nlohmann {                              \
  EXTERN template class basic_json<>;               \
  namespace detail {                                \
  EXTERN template class serializer<json>;           \
  EXTERN template class lexer<json, TextInput>;     \
  EXTERN template class lexer<json, PointerInput>;  \
  EXTERN template class parser<json, TextInput>;    \
  EXTERN template class parser<json, PointerInput>; \
  }                                                 \
  }

TENON_JSON_TEMPLATES(extern)
