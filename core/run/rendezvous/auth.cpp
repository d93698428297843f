#include "run/rendezvous/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstring>

namespace tenon::run {

namespace {

constexpr std::string_view kMagic = "TNR1";

template <class T>
std::string bytes_of(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

Error crypto_failed(const std::string& what) {
  return Error{"W021", what + " failed", "OpenSSL", "is the library's default provider available?",
               TENON_E_INTERNAL};
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Result<std::string> random_bytes(size_t count) {
  std::string out(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(count)) != 1) {
    return crypto_failed("RAND_bytes");
  }
  return out;
}

Result<std::string> make_secret() { return random_bytes(kSecretBytes); }

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

Result<std::string> secret_from_hex(std::string_view text) {
  const Error error{"W020", "the secret is not 64 hexadecimal digits", "rendezvous secret",
                    "make one with: openssl rand -hex 32", TENON_E_ARGUMENT};
  if (text.size() != 2 * kSecretBytes) return error;
  std::string out;
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = hex_digit(text[i]);
    const int low = hex_digit(text[i + 1]);
    if (high < 0 || low < 0) return error;
    out += static_cast<char>(high * 16 + low);
  }
  return out;
}

Status check_secret(std::string_view secret, const std::string& address) {
  if (secret.size() == kSecretBytes) return {};
  return Error{"W020",
               "a secret of " + std::to_string(secret.size()) + " bytes for " + address + "; it must have " +
                   std::to_string(kSecretBytes),
               "rendezvous secret", "give all ranks the same 32 random bytes", TENON_E_ARGUMENT};
}

Result<std::string> mac_of(std::string_view key, std::initializer_list<std::string_view> parts) {
  size_t total = 0;
  for (const std::string_view part : parts) total += part.size() + sizeof(uint64_t);
  std::string message;
  message.reserve(total);
  for (const std::string_view part : parts) {
    message += bytes_of(static_cast<uint64_t>(part.size()));
    message += part;
  }
  std::string mac(kMacBytes, '\0');
  unsigned int size = 0;
  const unsigned char* done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                   reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                                   reinterpret_cast<unsigned char*>(mac.data()), &size);
  if (done == nullptr || size != kMacBytes) return crypto_failed("HMAC-SHA256");
  return mac;
}

bool same_mac(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Result<std::string> make_hello(uint32_t rank) {
  TENON_TRY(const std::string nonce, random_bytes(kHelloBytes - kMagic.size() - sizeof rank));
  return std::string(kMagic) + bytes_of(rank) + nonce;
}

std::optional<uint32_t> rank_of_hello(std::string_view hello) {
  if (hello.size() != kHelloBytes || hello.substr(0, kMagic.size()) != kMagic) return std::nullopt;
  uint32_t rank = 0;
  std::memcpy(&rank, hello.data() + kMagic.size(), sizeof rank);
  return rank;
}

Result<std::string> Sealer::seal(std::string_view payload) {
  if (payload.size() > kMaxFrameBytes) {
    return Error{"W027",
                 "a frame of " + std::to_string(payload.size()) + " bytes, at most " +
                     std::to_string(kMaxFrameBytes) + " are allowed",
                 "rendezvous", "", TENON_E_ARGUMENT};
  }
  TENON_TRY(const std::string mac, mac_of(key_, {bytes_of(counter_), payload}));
  ++counter_;
  std::string frame = bytes_of(static_cast<uint32_t>(payload.size()));
  frame += payload;
  frame += mac;
  return frame;
}

Result<std::optional<std::string>> Opener::next() {
  uint32_t size = 0;
  if (buffer_.size() < sizeof size) return std::optional<std::string>();
  std::memcpy(&size, buffer_.data(), sizeof size);
  if (size > kMaxFrameBytes) {
    return Error{"W027",
                 "a frame claims " + std::to_string(size) + " bytes, at most " +
                     std::to_string(kMaxFrameBytes) + " are allowed",
                 "rendezvous", "", TENON_E_PEER};
  }
  const size_t total = sizeof size + size + kMacBytes;
  if (buffer_.size() < total) return std::optional<std::string>();
  const std::string payload = buffer_.substr(sizeof size, size);
  TENON_TRY(const std::string mac, mac_of(key_, {bytes_of(counter_), payload}));
  if (!same_mac(mac, std::string_view(buffer_).substr(sizeof size + size, kMacBytes))) {
    return Error{"W022", "frame " + std::to_string(counter_) + " is forged, replayed or out of order",
                 "rendezvous", "", TENON_E_PEER};
  }
  ++counter_;
  buffer_.erase(0, total);
  return std::optional<std::string>(payload);
}

}  // namespace tenon::run
