#include "run/checkpoint/digest.h"

#include <openssl/evp.h>
#include <xxhash.h>

namespace tenon::checkpoint {

Sha256::Sha256() : context_(EVP_MD_CTX_new()), ok_(context_ != nullptr) {
  ok_ = ok_ && EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) == 1;
}

Sha256::~Sha256() { EVP_MD_CTX_free(context_); }

void Sha256::update(const void* data, uint64_t bytes) {
  ok_ = ok_ && EVP_DigestUpdate(context_, data, bytes) == 1;
}

Result<std::string> Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  ok_ = ok_ && EVP_DigestFinal_ex(context_, digest, &length) == 1;
  if (!ok_) return Error{"C002", "OpenSSL cannot compute SHA-256", "", "", TENON_E_INTERNAL};
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < length; ++i) {
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15];
  }
  return text;
}

Result<std::string> sha256(const std::string& text) {
  Sha256 digest;
  digest.update(text.data(), text.size());
  return digest.hex();
}

uint64_t chunk_checksum(const ChunkPlace& place, const void* data, uint64_t bytes) {
  // None of the fields can hold a newline, so different places give different texts.
  const std::string text = place.id.run_id + "\n" + std::to_string(place.id.step) + "\n" + place.tensor +
                           "\n" + std::to_string(place.shard) + "\n" + std::to_string(place.offset);
  const uint64_t seed = XXH3_64bits(text.data(), text.size());
  return XXH3_64bits_withSeed(data, bytes, seed);
}

}  // namespace tenon::checkpoint
