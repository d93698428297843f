// Requests and replies inside authenticated frames. Parsers accept any bytes and never read past them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tenon::run {

struct Request {
  enum class Kind : uint8_t { kSet = 1, kGet = 2 };
  Kind kind = Kind::kGet;
  uint32_t id = 0;
  int64_t timeout_ns = 0;  // get only
  std::string key;
  std::string value;  // set only
};

struct Reply {
  uint32_t id = 0;
  tenon_code kind = TENON_OK;
  std::string code;  // four characters, "W024"; "OK  " without an error
  std::string body;  // a value, or the cause of the error
};

std::string encode(const Request& request);
std::string encode(const Reply& reply);
std::optional<Request> decode_request(std::string_view bytes);
std::optional<Reply> decode_reply(std::string_view bytes);
Reply error_reply(uint32_t id, const Error& error);

}  // namespace tenon::run
