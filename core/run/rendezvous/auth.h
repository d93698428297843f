// Who may speak, and proof of who spoke: a mutual HMAC-SHA256 challenge, then a MAC and a counter per frame.
//
//   client -> server   hello  = "TNR1" | rank u32 | client nonce (24)                        32 bytes
//   server -> client   reply  = server nonce (32) | HMAC(secret, "server", job, hello, nonce)
//   client -> server   proof  = HMAC(secret, "client", job, hello, nonce)                    32 bytes
//   both, from then on frame  = length u32 | payload | HMAC(session key, counter u64, payload)
//
// A server thus reads 64 bytes before the other side is proven. The session key binds the secret, the job,
// the rank and both nonces and differs by direction; the counter is not sent, so a replayed, reordered or
// reflected frame fails. The secret itself never travels. Payloads are authenticated, not encrypted.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tenon::run {

inline constexpr size_t kSecretBytes = 32;
inline constexpr size_t kMacBytes = 32;
inline constexpr size_t kHelloBytes = 32;
inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kReplyBytes = kNonceBytes + kMacBytes;
inline constexpr size_t kMaxFrameBytes = (size_t{16} << 20) + 1024;

// Cryptographically random bytes.
Result<std::string> random_bytes(size_t count);
// A fresh secret for one job. Hand it to workers by file descriptor, a 0600 file, or hex in a pipe.
Result<std::string> make_secret();
std::string to_hex(std::string_view bytes);
// W020 unless `text` is 64 hexadecimal digits. The message does not repeat the text.
Result<std::string> secret_from_hex(std::string_view text);
// W020 unless it has 32 bytes.
Status check_secret(std::string_view secret, const std::string& address);

// HMAC-SHA256 over the parts, each preceded by its length.
Result<std::string> mac_of(std::string_view key, std::initializer_list<std::string_view> parts);
// Takes the same time whatever the bytes.
bool same_mac(std::string_view a, std::string_view b);

Result<std::string> make_hello(uint32_t rank);
// Nothing if it is not a hello.
std::optional<uint32_t> rank_of_hello(std::string_view hello);

// What both sides derive from one handshake.
class Handshake {
 public:
  Handshake(std::string_view secret, std::string_view job, std::string_view hello,
            std::string_view server_nonce)
      : secret_(secret), job_(job), hello_(hello), nonce_(server_nonce) {}
  Result<std::string> server_proof() const { return derive("server"); }
  Result<std::string> client_proof() const { return derive("client"); }
  Result<std::string> key_to_server() const { return derive("key to server"); }
  Result<std::string> key_to_client() const { return derive("key to client"); }

 private:
  Result<std::string> derive(std::string_view label) const {
    return mac_of(secret_, {label, job_, hello_, nonce_});
  }
  std::string secret_, job_, hello_, nonce_;
};

// Makes frames of one direction.
class Sealer {
 public:
  explicit Sealer(std::string key) : key_(std::move(key)) {}
  Result<std::string> seal(std::string_view payload);

 private:
  std::string key_;
  uint64_t counter_ = 0;
};

// Checks and unpacks frames of one direction. After an error the connection must be dropped.
class Opener {
 public:
  explicit Opener(std::string key) : key_(std::move(key)) {}
  void feed(std::string_view bytes) { buffer_ += bytes; }
  // The next payload; nothing when the frame is not complete yet. W027: longer than allowed, seen from its
  // first four bytes; W022: the MAC is wrong.
  Result<std::optional<std::string>> next();

 private:
  std::string key_;
  std::string buffer_;
  uint64_t counter_ = 0;
};

}  // namespace tenon::run
