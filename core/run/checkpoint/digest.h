// Checksums of a checkpoint: SHA-256 for whole files, seeded XXH3-64 for chunks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

struct evp_md_ctx_st;

namespace tenon::checkpoint {

// What a save is of. The run id stays the same when a run is resumed.
struct SaveId {
  std::string run_id;  // 1 to 64 of A-Z a-z 0-9 . _ -
  int64_t step = 0;    // optimizer steps done, >= 0
};

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(const void* data, uint64_t bytes);
  // 64 lower-case hexadecimal digits. Call once, last.
  Result<std::string> hex();

 private:
  evp_md_ctx_st* context_;
  bool ok_;
};

Result<std::string> sha256(const std::string& text);

// Where a chunk belongs. It seeds the checksum, so a right chunk in a wrong place fails too.
struct ChunkPlace {
  const SaveId& id;
  const std::string& tensor;
  uint32_t shard;
  int64_t offset;  // bytes from the start of the shard's data
};

uint64_t chunk_checksum(const ChunkPlace& place, const void* data, uint64_t bytes);

}  // namespace tenon::checkpoint
