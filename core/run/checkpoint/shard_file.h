// The layout of one shard file: a safetensors file whose header follows from the manifest, byte for byte.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "run/checkpoint/manifest.h"

namespace tenon::checkpoint {

inline constexpr int64_t kHeaderAlignment = 4096;
// Readers of safetensors refuse longer headers.
inline constexpr size_t kMaxHeaderBytes = 100'000'000;

// One stored part. Pointers into the manifest.
struct Entry {
  const std::string* name;  // logical
  const Tensor* tensor;
  const Part* part;

  int64_t bytes() const { return part->slice().flat.size * dtype_bytes(tensor->dtype); }
};

struct ShardLayout {
  std::string header;          // with its length in front and its padding behind: data starts after it
  std::vector<Entry> entries;  // by offset, without holes
  int64_t data_bytes = 0;
};

// "shard-00000.safetensors"
std::string shard_file_name(uint32_t shard);
// "wte.weight" when the part is the whole tensor, else "wte.weight[0:4,0:8]", with "{10:20}" for a flat
// range.
std::string stored_name(const std::string& name, const Tensor& tensor, const Part& part);
// The order in which parts are stored: large elements first, so that each is aligned; then by name and place.
bool stored_before(const Entry& one, const Entry& other);
// From all tensors, the entries of `shard`; each entry's offset must be where the one before ends (C003).
Result<ShardLayout> lay_out(const SaveId& id, const std::map<std::string, Tensor>& tensors, uint32_t shard,
                            const std::string& file);
// All shards of a manifest in one pass. C003 when a shard's size is not what its parts need.
Result<std::vector<ShardLayout>> lay_out(const Manifest& manifest, const std::string& file);
// C004 unless `stored`, the first bytes of the shard file at `path` (as many as the layout's header has,
// fewer when the file ends before), is that header byte for byte. The cause says what differs first: the
// length, the form, an entry that is missing, left over or of another type, shape or place.
Status check_header(const ShardLayout& layout, std::string_view stored, const std::string& path);

}  // namespace tenon::checkpoint
