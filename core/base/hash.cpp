#include "base/hash.h"

#include <xxhash.h>

namespace tenon {

Sha256::Sha256() { SHA256_Init(&context_); }

void Sha256::update(std::span<const std::byte> bytes) {
  SHA256_Update(&context_, bytes.data(), bytes.size());
}

Sha256Digest Sha256::digest() const {
  SHA256_CTX copy = context_;
  Sha256Digest out;
  SHA256_Final(out.data(), &copy);
  return out;
}

Sha256Digest sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.digest();
}

Sha256Digest sha256(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

std::string hex(std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (const uint8_t byte : bytes) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::string sha256_hex(std::string_view text) { return hex(sha256(text)); }

uint64_t xxh3_64(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

uint64_t xxh3_64(std::string_view text) { return xxh3_64(std::as_bytes(std::span(text))); }

std::array<uint64_t, 2> xxh3_128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

uint64_t key_from(uint64_t seed, std::string_view name) {
  std::array<std::byte, 8> prefix;
  for (size_t i = 0; i < prefix.size(); ++i) prefix[i] = static_cast<std::byte>(seed >> (8 * i));
  Sha256 hash;
  hash.update(prefix);
  hash.update(name);
  const Sha256Digest digest = hash.digest();
  uint64_t key = 0;
  for (size_t i = 0; i < 8; ++i) key |= static_cast<uint64_t>(digest[i]) << (8 * i);
  return key;
}

}  // namespace tenon
