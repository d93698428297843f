// Loading: nothing is handed out before its checksum was verified. Any slice of a tensor can be read,
// whatever the slices it was saved in. Reentrant; a Checkpoint may be read from several threads.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "base/result.h"
#include "run/checkpoint/manifest.h"
#include "run/checkpoint/shard_file.h"
#include "run/checkpoint/storage.h"

namespace tenon::checkpoint {

class Checkpoint {
 public:
  // Takes a directory: reads and validates the manifest, and compares size and header of every shard with it.
  // `storage` must outlive the result. Fails with C002, C003, C004, C008, C013.
  static Result<Checkpoint> open(Storage& storage, const std::string& directory);
  Checkpoint(Checkpoint&&) = default;
  Checkpoint& operator=(Checkpoint&&) = default;

  const std::string& directory() const { return directory_; }
  // Names, element types, shapes, sizes and the caller's meta.
  const Manifest& manifest() const { return manifest_; }

  // Fills `destination` (`bytes` long, dense) with the elements `slice` of tensor `name`; every chunk is
  // verified before it is used. After an error the destination must not be used. Fails with C002, C004, C006
  // (damaged chunk), C012 (no such tensor or slice, wrong size).
  Status read(const std::string& name, const Slice& slice, void* destination, uint64_t bytes) const;
  // All of it.
  Status read(const std::string& name, void* destination, uint64_t bytes) const;

  // Reads every byte: chunk checksums and SHA-256 of each shard. Fails with C002, C004, C006.
  Status verify_all() const;

 private:
  struct Target;
  Checkpoint(Storage& storage, std::string directory)
      : storage_(&storage), directory_(std::move(directory)) {}
  std::string shard_path(uint32_t shard) const;
  Status check_directory() const;
  Status check_shard(uint32_t shard) const;
  Status verify_shard(uint32_t shard) const;
  Status read_part(const std::string& name, const Tensor& tensor, const Part& part,
                   const Target& target) const;

  Storage* storage_;
  std::string directory_;
  Manifest manifest_;
  std::vector<ShardLayout> layouts_;  // points into manifest_.tensors, whose nodes stay in place when moved
};

struct Rejected {
  std::string directory;
  Error error;
};

struct CheckpointInfo {
  std::string directory;
  SaveId id;
  std::string meta;                // JSON object
  std::vector<Rejected> rejected;  // newer ones, newest first, with the reason
};

enum class Depth {
  kStructure,  // manifest, sizes and headers
  kPayload,    // every byte too: what to ask for before a run resumes
};

// The greatest step-<N> up to `max_step` that verifies. C001 with all reasons when there is none.
Result<CheckpointInfo> find_latest(Storage& storage, const std::string& root, Depth depth = Depth::kPayload,
                                   int64_t max_step = std::numeric_limits<int64_t>::max());

struct Listing {
  std::string directory;
  int64_t step = 0;   // from the name of the directory
  SaveId id;          // these four only when `error` is empty
  int64_t bytes = 0;  // of all shards
  size_t num_tensors = 0;
  std::string meta;
  std::optional<Error> error;
};

// All step-<N> entries, newest first, each opened but not read. A root that does not exist is an empty list.
Result<std::vector<Listing>> list_checkpoints(Storage& storage, const std::string& root);

struct ExpectedTensor {
  std::string name;
  uint32_t dtype = 0;
  Shape shape;
};

// C005, naming up to five of them, when tensors are missing, left over, or of another type or shape.
Status match(const Manifest& manifest, const std::vector<ExpectedTensor>& expected);

// "step-<N>" without leading zeros; nothing for other names.
std::optional<int64_t> step_of(const std::string& directory_name);
std::string step_name(int64_t step);

}  // namespace tenon::checkpoint
