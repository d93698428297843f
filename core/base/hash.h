// Digests: SHA-256 where content is identified, XXH3 where damage is detected, and keys of random sequences.
// All of them are file formats: equal input gives equal output on every machine and in every release.
#pragma once

#define OPENSSL_SUPPRESS_DEPRECATED  // see Sha256
#include <openssl/sha.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tenon {

using Sha256Digest = std::array<uint8_t, 32>;

// SHA-256 of a stream of bytes. A plain value: a copy continues on its own. OpenSSL's low-level functions are
// used because they can neither fail nor read OpenSSL's configuration.
class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  // Digest of what came so far; more may follow.
  Sha256Digest digest() const;

 private:
  SHA256_CTX context_;
};

Sha256Digest sha256(std::span<const std::byte> bytes);
Sha256Digest sha256(std::string_view text);
// Lower-case hexadecimal, two digits a byte.
std::string hex(std::span<const uint8_t> bytes);
std::string sha256_hex(std::string_view text);

// XXH3, 64 bits, seed 0.
uint64_t xxh3_64(std::span<const std::byte> bytes);
uint64_t xxh3_64(std::string_view text);
// XXH3, 128 bits, seed 0: the low half, then the high one.
std::array<uint64_t, 2> xxh3_128(std::span<const std::byte> bytes);

// Key of the random sequence called `name` ("init/wte.weight") under a recipe's seed: the first 8 bytes of
// SHA-256(seed as 8 bytes, name), both little-endian.
uint64_t key_from(uint64_t seed, std::string_view name);

}  // namespace tenon
