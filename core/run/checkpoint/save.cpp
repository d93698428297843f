// begin() and write_shard(); commit() is in commit.cpp.
#include "run/checkpoint/save.h"

#include <algorithm>
#include <set>

#include "run/checkpoint/errors.h"
#include "run/checkpoint/load.h"
#include "run/checkpoint/manifest.h"
#include "run/checkpoint/shard_file.h"

namespace tenon::checkpoint {
namespace {

// A part in its stored form, with the caller's data.
struct Source {
  const std::string* name;
  const Tensor* tensor;
  Part part;
  const std::byte* data;

  Entry entry() const { return {name, tensor, &part}; }
};

Error bad_part(const TensorPart& part, std::string cause) {
  return bad_argument(std::move(cause), "tensor '" + part.name + "'");
}

Status check_part(const TensorPart& part) {
  TENON_CHECK(check_tensor_name(part.name));
  if (dtype_bytes(part.dtype) == 0)
    return bad_part(part, "unknown element type " + std::to_string(part.dtype));
  if (!num_elements(part.shape))
    return bad_part(part, "not a shape: negative sizes, over 16 dims or 2^58 elements");
  if (!inside(part.box, part.shape))
    return bad_part(part, "box " + to_text(part.box) + " lies outside the tensor");
  const int64_t in_box = num_elements(part.box);
  if (part.flat && !inside(*part.flat, in_box)) return bad_part(part, "the flat range lies outside the box");
  const int64_t bytes = (part.flat ? part.flat->size : in_box) * dtype_bytes(part.dtype);
  if (static_cast<uint64_t>(bytes) != part.bytes) {
    return bad_part(
        part, "the data has " + std::to_string(part.bytes) + " bytes, the part " + std::to_string(bytes));
  }
  if (bytes > 0 && part.data == nullptr) return bad_part(part, "no data");
  return {};
}

// Declares the tensor in `report` and gives its part in stored form; nothing for a part without elements.
Result<std::optional<Source>> declare(const TensorPart& given, Report& report) {
  TENON_CHECK(check_part(given));
  const auto [at, added] = report.tensors.try_emplace(given.name, Tensor{given.dtype, given.shape, {}});
  if (!added && (at->second.dtype != given.dtype || at->second.shape != given.shape)) {
    return bad_part(given, "two parts disagree on element type or shape");
  }
  if (given.bytes == 0) return std::optional<Source>();
  Part part;
  part.shard = report.shard;
  part.box = given.box;
  part.flat = given.flat;
  if (part.flat && part.flat->size == num_elements(part.box)) part.flat.reset();
  return std::optional<Source>(
      Source{&at->first, &at->second, std::move(part), static_cast<const std::byte*>(given.data)});
}

Result<std::vector<Source>> arrange(std::span<const TensorPart> parts, Report& report) {
  std::vector<Source> sources;
  std::set<std::string> names;
  for (const TensorPart& given : parts) {
    TENON_TRY(std::optional<Source> source, declare(given, report));
    if (!source) continue;
    if (!names.insert(stored_name(given.name, *source->tensor, source->part)).second) {
      return bad_part(given, "the same part is given twice");
    }
    sources.push_back(std::move(*source));
  }
  std::sort(sources.begin(), sources.end(),
            [](const Source& one, const Source& other) { return stored_before(one.entry(), other.entry()); });
  int64_t offset = 0;
  for (Source& source : sources) {
    source.part.offset = offset;
    if (__builtin_add_overflow(offset, source.entry().bytes(), &offset)) {
      return bad_argument("the shard is larger than 2^63 bytes", shard_file_name(report.shard));
    }
  }
  return sources;
}

// Writes the parts behind the header, and notes their checksums.
Status write_parts(OutputFile& file, const std::string& path, const SaveId& id, int64_t data_start,
                   std::vector<Source>& sources, Sha256& digest) {
  for (Source& source : sources) {
    const int64_t bytes = source.entry().bytes();
    for (int64_t done = 0; done < bytes; done += kChunkBytes) {
      const uint64_t size = static_cast<uint64_t>(std::min(kChunkBytes, bytes - done));
      const int64_t offset = source.part.offset + done;
      const std::byte* data = source.data + done;
      source.part.chunks.push_back(chunk_checksum({id, *source.name, source.part.shard, offset}, data, size));
      digest.update(data, size);
      TENON_CHECK(write_all(file, path, static_cast<uint64_t>(data_start + offset), data, size));
    }
  }
  return {};
}

// The header depends on everything but the checksums, so it is known before the data is written.
Result<ShardLayout> plan_layout(const Report& report, const std::vector<Source>& sources) {
  std::map<std::string, Tensor> tensors = report.tensors;
  for (const Source& source : sources) tensors[*source.name].parts.push_back(source.part);
  TENON_TRY(ShardLayout layout, lay_out(report.id, tensors, report.shard, "shard report"));
  layout.entries.clear();  // they point into the local map
  return layout;
}

}  // namespace

Status check_owner(Storage& storage, const std::string& root, const std::string& run_id) {
  TENON_TRY(const std::vector<Listing> listings, list_checkpoints(storage, root));
  for (const Listing& listing : listings) {
    if (listing.error || listing.id.run_id == run_id) continue;
    return Error{kRootConflict,
                 "holds a checkpoint of run '" + listing.id.run_id + "', not of '" + run_id + "'",
                 listing.directory, "give each run a folder of its own", TENON_E_CHECKPOINT};
  }
  return {};
}

Result<std::string> begin(Storage& storage, const std::string& root, const SaveId& id,
                          const std::string& nonce) {
  TENON_CHECK(check_id(id));
  if (!is_token(nonce))
    return bad_argument("nonce '" + nonce + "': must be 1 to 64 of A-Z a-z 0-9 . _ -", root);
  const std::string base = trimmed(root);
  TENON_CHECK(check_owner(storage, base, id.run_id));
  TENON_CHECK(make_path(storage, base));
  TENON_TRY(const std::vector<std::string> names, storage.list(base));
  for (const std::string& name : names) {
    if (name.starts_with(kTemporaryPrefix)) TENON_CHECK(remove_tree(storage, base + "/" + name));
  }
  const std::string tmp = base + "/" + kTemporaryPrefix + std::to_string(id.step) + "-" + nonce;
  TENON_CHECK(storage.make_directory(tmp));
  return tmp;
}

Result<std::string> write_shard(Storage& storage, const std::string& tmp, const SaveId& id, uint32_t shard,
                                std::span<const TensorPart> parts) {
  TENON_CHECK(check_id(id));
  if (shard >= kMaxShards) return bad_argument("shard " + std::to_string(shard) + ": at most 99998", tmp);
  Report report;
  report.attempt = base_name(tmp);
  report.shard = shard;
  report.id = id;
  TENON_TRY(std::vector<Source> sources, arrange(parts, report));
  TENON_TRY(const ShardLayout layout, plan_layout(report, sources));
  report.file.bytes = static_cast<int64_t>(layout.header.size()) + layout.data_bytes;

  const std::string path = trimmed(tmp) + "/" + shard_file_name(shard);
  TENON_TRY(const std::unique_ptr<OutputFile> file, storage.create(path));
  TENON_CHECK(file->preallocate(static_cast<uint64_t>(report.file.bytes)));
  Sha256 digest;
  digest.update(layout.header.data(), layout.header.size());
  TENON_CHECK(write_all(*file, path, 0, layout.header.data(), layout.header.size()));
  const int64_t data_start = static_cast<int64_t>(layout.header.size());
  TENON_CHECK(write_parts(*file, path, id, data_start, sources, digest));
  TENON_CHECK(file->sync());
  TENON_CHECK(file->close());
  TENON_CHECK(storage.sync_directory(tmp));

  TENON_TRY(report.file.sha256, digest.hex());
  for (Source& source : sources) report.tensors[*source.name].parts.push_back(std::move(source.part));
  return report_text(report);
}

Status abandon(Storage& storage, const std::string& tmp) {
  if (!base_name(tmp).starts_with(kTemporaryPrefix)) return bad_argument("not a temporary directory", tmp);
  return remove_tree(storage, trimmed(tmp));
}

}  // namespace tenon::checkpoint
