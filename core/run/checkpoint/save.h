// Saving: begin() on the coordinator, write_shard() on every rank, commit() on the coordinator. The caller
// carries the directory name and the reports (plain JSON text) between ranks; all ranks see one file system.
// A save that fails or dies leaves every older checkpoint as it was. Nothing is retried. At most one save per
// root may be in flight. Reentrant; call from any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "run/checkpoint/digest.h"
#include "run/checkpoint/geometry.h"
#include "run/checkpoint/storage.h"

namespace tenon::checkpoint {

// Entries of a root with this prefix are unfinished or unwanted and free to be removed.
inline constexpr const char* kTemporaryPrefix = ".tmp-";

// A slice of a tensor in host memory. `name`, `dtype` and `shape` are those of the logical tensor and equal
// on all ranks; `box` and `flat` say which elements this part holds, densely, in row-major order. Parts
// without elements are allowed; they only declare the tensor.
struct TensorPart {
  std::string name;    // "wte.weight", "wte.weight/optimizer/adamw.exp_avg"
  uint32_t dtype = 0;  // TENON_F32 ...
  Shape shape;
  Box box;                     // whole_box(shape) for all of it
  std::optional<Range> flat;   // elements of the flattened box; absent: all of the box
  const void* data = nullptr;  // borrowed for the call, must not change during it
  uint64_t bytes = 0;
};

enum class NewerSteps {
  kRefuse,  // C010 when a sound checkpoint of a greater step is there
  kRemove,  // it belongs to an abandoned future: remove it after the commit (a run resumed from an older
            // step)
};

struct CommitOptions {
  int keep = 2;  // sound checkpoints left, the new one included; at least 1
  NewerSteps newer = NewerSteps::kRefuse;
  // Read all payload back and verify it before the commit. Without, sizes, headers and the manifest only.
  bool verify_payload = true;
};

// Whether `root` may hold checkpoints of this run: C010 when a sound one of another is there. A root that is
// missing may.
Status check_owner(Storage& storage, const std::string& root, const std::string& run_id);

// Removes what dead saves left and makes the directory `root`/.tmp-<step>-<nonce>; makes `root` when missing.
// Returns its path, to be given to write_shard on every rank. `nonce` is unique per attempt: 1 to 64 of
// A-Z a-z 0-9 . _ -. Fails with C002 (storage), C007 (argument), C010 (another run).
Result<std::string> begin(Storage& storage, const std::string& root, const SaveId& id,
                          const std::string& nonce);

// Writes one shard file, durably, and returns its report. Shards are numbered from 0 without gaps; a rank
// with nothing to save writes a shard of no parts or leaves its number to nobody. Fails with C002, C007.
Result<std::string> write_shard(Storage& storage, const std::string& tmp, const SaveId& id, uint32_t shard,
                                std::span<const TensorPart> parts);

// Checks that the reports cover every tensor exactly once, writes the manifest, verifies what is on disk and
// makes it visible as `root`/step-<N> by one rename; then removes checkpoints beyond `keep`. A checkpoint of
// the same step is replaced by an atomic swap. `meta` is a JSON object for the caller's own use. Returns the
// directory. Fails with C002, C003/C004/C006 (read back wrong), C007, C008 (coverage), C009 (reports), C010
// (another run, newer steps), C011 (committed, but old ones could not be removed).
Result<std::string> commit(Storage& storage, const std::string& root, const std::string& tmp,
                           const SaveId& id, const std::vector<std::string>& reports, const std::string& meta,
                           const CommitOptions& options);

// Removes the temporary directory of a failed save now instead of at the next begin().
Status abandon(Storage& storage, const std::string& tmp);

}  // namespace tenon::checkpoint
