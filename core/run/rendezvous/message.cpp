#include "run/rendezvous/message.h"

#include <cstring>

#include "run/rendezvous/rendezvous.h"

namespace tenon::run {

namespace {

constexpr size_t kCodeBytes = 4;

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
bool take(std::string_view& bytes, T& value) {
  if (bytes.size() < sizeof value) return false;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return true;
}

}  // namespace

std::string encode(const Request& request) {
  std::string out;
  put(out, static_cast<uint8_t>(request.kind));
  put(out, request.id);
  put(out, request.timeout_ns);
  put(out, static_cast<uint16_t>(request.key.size()));
  return out + request.key + request.value;
}

std::optional<Request> decode_request(std::string_view bytes) {
  Request request;
  uint8_t kind = 0;
  uint16_t key_size = 0;
  if (!take(bytes, kind) || !take(bytes, request.id) || !take(bytes, request.timeout_ns) ||
      !take(bytes, key_size)) {
    return std::nullopt;
  }
  if (kind != 1 && kind != 2) return std::nullopt;
  if (key_size > kMaxKeyBytes || key_size > bytes.size()) return std::nullopt;
  request.kind = static_cast<Request::Kind>(kind);
  request.key = bytes.substr(0, key_size);
  request.value = bytes.substr(key_size);
  return request;
}

std::string encode(const Reply& reply) {
  std::string out;
  put(out, reply.id);
  put(out, reply.kind);
  std::string code = reply.code;
  code.resize(kCodeBytes, ' ');
  return out + code + reply.body;
}

std::optional<Reply> decode_reply(std::string_view bytes) {
  Reply reply;
  if (!take(bytes, reply.id) || !take(bytes, reply.kind) || bytes.size() < kCodeBytes) return std::nullopt;
  if (reply.kind > TENON_OK) return std::nullopt;  // neither an answer nor an error
  reply.code = bytes.substr(0, kCodeBytes);
  reply.body = bytes.substr(kCodeBytes);
  return reply;
}

Reply error_reply(uint32_t id, const Error& error) { return Reply{id, error.kind, error.code, error.cause}; }

}  // namespace tenon::run
