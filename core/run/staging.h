// Where a data plugin writes a batch: memory that shows what it did wrong.
#pragma once

#include <cstdint>
#include <vector>

#include "run/declarations.h"

namespace tenon {

// Memory for one field. Behind it lie bytes that nobody may write, then a page that nobody can.
class StagingBuffer {
 public:
  StagingBuffer() = default;
  StagingBuffer(StagingBuffer&& other) noexcept;
  StagingBuffer& operator=(StagingBuffer&& other) noexcept;
  ~StagingBuffer();

  // Room for `bytes`, aligned to 64. Keeps what it has where that fits. Error E010.
  Status resize(size_t bytes);
  // With what is no value of an integer field; see check_written().
  void poison();
  bool is_overrun() const;

  char* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  char* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

// Whether what a plugin wrote is what it declared: within its buffer, and every integer from `least` (0 or
// -1) to below `limit`. A value that was not written is none of those. Error D007, which names `who`.
struct ValueRange {
  int64_t least = 0, limit = INT64_MAX;
};
Status check_written(const StagingBuffer& buffer, const FieldDeclaration& field, const ValueRange& range,
                     const std::string& who);

}  // namespace tenon
