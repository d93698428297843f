// The manifest says what a checkpoint holds and where. A Manifest returned by parse_manifest is sound: every
// tensor is covered exactly once, every shard is full, all sizes are in range. Shard reports are manifests of
// one shard.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "run/checkpoint/digest.h"
#include "run/checkpoint/geometry.h"

namespace tenon::checkpoint {

inline constexpr int64_t kFormatVersion = 1;
inline constexpr int64_t kChunkBytes = int64_t{4} << 20;
inline constexpr uint64_t kMaxManifestBytes = uint64_t{256} << 20;
inline constexpr const char* kManifestFile = "manifest.json";

// One slice of a tensor, stored densely in one shard.
struct Part {
  uint32_t shard = 0;
  int64_t offset = 0;  // bytes from the start of the shard's data
  Box box;
  std::optional<Range> flat;     // absent: the whole box
  std::vector<uint64_t> chunks;  // checksum of each kChunkBytes of it

  Slice slice() const { return {box, flat.value_or(Range{0, num_elements(box)})}; }
};

struct Tensor {
  uint32_t dtype = 0;  // TENON_F32 ...
  Shape shape;
  std::vector<Part> parts;  // none when the tensor has no elements

  int64_t elements() const { return *num_elements(shape); }
  int64_t bytes() const;
};

struct Shard {
  int64_t bytes = 0;
  std::string sha256;
};

struct Manifest {
  SaveId id;
  std::string meta = "{}";  // canonical JSON object of the caller
  std::vector<Shard> shards;
  std::map<std::string, Tensor> tensors;  // by logical name
};

inline constexpr int64_t kMaxShards = 99999;

struct Report {
  std::string attempt;  // name of the temporary directory
  uint32_t shard = 0;
  SaveId id;
  Shard file;
  std::map<std::string, Tensor> tensors;
};

// C003 (damaged), C008 (gaps, overlaps) or C013 (format of a newer Tenon), placed at `file` and the entry.
// Whether the shards have room for their parts is lay_out()'s to say.
Result<Manifest> parse_manifest(const std::string& text, const std::string& file);
// Canonical JSON with its own digest and a newline; parse_manifest accepts these very bytes only.
Result<std::string> manifest_text(const Manifest& manifest);

Result<Report> parse_report(const std::string& text);
std::string report_text(const Report& report);

// C008 unless the parts cover the tensor exactly once.
Status check_coverage(const std::string& name, const Tensor& tensor, const std::string& file);

// Element types: safetensors' name ("F32") and bytes of one element; 0 and "" for unknown ones.
const char* dtype_name(uint32_t dtype);
int64_t dtype_bytes(uint32_t dtype);

// Rules of names, with the reason when broken (C007).
Status check_id(const SaveId& id);
Status check_tensor_name(const std::string& name);
bool is_token(const std::string& text);  // 1 to 64 of A-Z a-z 0-9 . _ -, and not "." or ".."

}  // namespace tenon::checkpoint
