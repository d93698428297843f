#include "run/checkpoint/load.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <set>

#include "run/checkpoint/errors.h"

namespace tenon::checkpoint {
namespace {

// "shard 0 chunk 3": how errors name a chunk.
std::string chunk_label(const Part& part, size_t chunk) {
  return "shard " + std::to_string(part.shard) + ", chunk " + std::to_string(chunk);
}

// Bytes of the part before chunk `chunk`, and of the chunk itself.
Range chunk_extent(int64_t part_bytes, size_t chunk) {
  const int64_t start = static_cast<int64_t>(chunk) * kChunkBytes;
  return {start, std::min(kChunkBytes, part_bytes - start)};
}

struct ChunkReader {
  InputFile& file;
  const std::string& path;
  const SaveId& id;
  int64_t data_start;  // of the shard's data in the file

  // Fills `buffer` with a chunk that has been verified.
  Status read(const Entry& entry, size_t chunk, std::vector<std::byte>& buffer) const {
    const Range extent = chunk_extent(entry.bytes(), chunk);
    const int64_t offset = entry.part->offset + extent.start;
    buffer.resize(static_cast<size_t>(extent.size));
    TENON_CHECK(
        read_all(file, path, static_cast<uint64_t>(data_start + offset), buffer.data(), buffer.size()));
    const ChunkPlace place{id, *entry.name, entry.part->shard, offset};
    if (chunk_checksum(place, buffer.data(), buffer.size()) == entry.part->chunks[chunk]) return {};
    return damaged(kBadChunk,
                   "the checksum of " + chunk_label(*entry.part, chunk) + " is wrong (" +
                       std::to_string(extent.size) + " bytes at " + std::to_string(data_start + offset) + ")",
                   path + ": tensor '" + *entry.name + "'");
  }
};

Result<std::string> read_manifest_text(Storage& storage, const std::string& path) {
  TENON_TRY(const std::unique_ptr<InputFile> file, storage.open(path));
  TENON_TRY(const uint64_t bytes, file->size());
  if (bytes > kMaxManifestBytes) return damaged(kBadManifest, "the manifest exceeds 256 MiB", path);
  std::string text(bytes, '\0');
  TENON_CHECK(read_all(*file, path, 0, text.data(), bytes));
  return text;
}

}  // namespace

struct Checkpoint::Target {
  const Slice& slice;
  std::byte* destination;
};

std::string Checkpoint::shard_path(uint32_t shard) const { return directory_ + "/" + shard_file_name(shard); }

Result<Checkpoint> Checkpoint::open(Storage& storage, const std::string& directory) {
  Checkpoint checkpoint(storage, trimmed(directory));
  TENON_CHECK(checkpoint.check_directory());
  const std::string path = checkpoint.directory_ + "/" + kManifestFile;
  TENON_TRY(const std::string text, read_manifest_text(storage, path));
  TENON_TRY(checkpoint.manifest_, parse_manifest(text, path));
  const std::optional<int64_t> step = step_of(base_name(directory));
  if (step && *step != checkpoint.manifest_.id.step) {
    return damaged(
        kBadManifest,
        "is of step " + std::to_string(checkpoint.manifest_.id.step) + ", not " + std::to_string(*step),
        path);
  }
  TENON_TRY(checkpoint.layouts_, lay_out(checkpoint.manifest_, path));
  TENON_TRY(const std::vector<std::string> names, storage.list(checkpoint.directory_));
  std::set<std::string> listed;
  for (uint32_t shard = 0; shard < checkpoint.layouts_.size(); ++shard) {
    listed.insert(shard_file_name(shard));
    TENON_CHECK(checkpoint.check_shard(shard));
  }
  for (const std::string& name : names) {
    if (!name.starts_with("shard-") || listed.contains(name)) continue;
    return damaged(kBadShard, "the manifest does not list this shard", checkpoint.directory_ + "/" + name);
  }
  return checkpoint;
}

Status Checkpoint::check_directory() const {
  TENON_TRY(const FileKind kind, storage_->kind(directory_));
  if (kind == FileKind::kDirectory) return {};
  return damaged(kBadManifest, kind == FileKind::kMissing ? "no such directory" : "not a directory",
                 directory_);
}

Status Checkpoint::check_shard(uint32_t shard) const {
  const std::string path = shard_path(shard);
  TENON_TRY(const std::unique_ptr<InputFile> file, storage_->open(path));
  TENON_TRY(const uint64_t bytes, file->size());
  const uint64_t expected = static_cast<uint64_t>(manifest_.shards[shard].bytes);
  if (bytes != expected) {
    return damaged(kBadShard,
                   "has " + std::to_string(bytes) + " bytes, the manifest says " + std::to_string(expected),
                   path);
  }
  std::string stored(layouts_[shard].header.size(), '\0');
  TENON_CHECK(read_all(*file, path, 0, stored.data(), stored.size()));
  return check_header(layouts_[shard], stored, path);
}

Status Checkpoint::read_part(const std::string& name, const Tensor& tensor, const Part& part,
                             const Target& target) const {
  const Entry entry{&name, &tensor, &part};
  const int64_t element = dtype_bytes(tensor.dtype);
  const std::string path = shard_path(part.shard);
  std::unique_ptr<InputFile> file;
  std::vector<std::byte> buffer;
  const int64_t first = part.slice().flat.start;
  for (size_t chunk = 0; chunk < part.chunks.size(); ++chunk) {
    const Range extent = chunk_extent(entry.bytes(), chunk);
    const Slice slice{part.box, {first + extent.start / element, extent.size / element}};
    if (!overlap(slice, target.slice)) continue;
    if (!file) {
      TENON_TRY(file, storage_->open(path));
    }
    const int64_t data_start = static_cast<int64_t>(layouts_[part.shard].header.size());
    TENON_CHECK((ChunkReader{*file, path, manifest_.id, data_start}.read(entry, chunk, buffer)));
    copy_overlap(slice, buffer.data(), target.slice, target.destination, element);
  }
  return {};
}

Status Checkpoint::read(const std::string& name, const Slice& slice, void* destination,
                        uint64_t bytes) const {
  const auto refuse = [&](std::string cause) {
    return Error{kNoSuchTensor, std::move(cause), directory_ + ": tensor '" + name + "'", "",
                 TENON_E_ARGUMENT};
  };
  const auto found = manifest_.tensors.find(name);
  if (found == manifest_.tensors.end()) return refuse("the checkpoint has no such tensor");
  const Tensor& tensor = found->second;
  if (!inside(slice.box, tensor.shape) || !inside(slice.flat, num_elements(slice.box))) {
    return refuse("box " + to_text(slice.box) + ", elements " + std::to_string(slice.flat.start) + " and " +
                  std::to_string(slice.flat.size) + " following lie outside " +
                  to_text(whole_box(tensor.shape)));
  }
  const int64_t needed = slice.flat.size * dtype_bytes(tensor.dtype);
  if (static_cast<uint64_t>(needed) != bytes) {
    return refuse("the slice has " + std::to_string(needed) + " bytes, the destination " +
                  std::to_string(bytes));
  }
  for (const Part& part : tensor.parts) {
    if (!intersect(part.box, slice.box)) continue;
    TENON_CHECK(read_part(name, tensor, part, {slice, static_cast<std::byte*>(destination)}));
  }
  return {};
}

Status Checkpoint::read(const std::string& name, void* destination, uint64_t bytes) const {
  const auto found = manifest_.tensors.find(name);
  const Shape shape = found == manifest_.tensors.end() ? Shape{} : found->second.shape;
  return read(name, {whole_box(shape), {0, *num_elements(shape)}}, destination, bytes);
}

Status Checkpoint::verify_shard(uint32_t shard) const {
  const std::string path = shard_path(shard);
  const ShardLayout& layout = layouts_[shard];
  TENON_TRY(const std::unique_ptr<InputFile> file, storage_->open(path));
  Sha256 digest;
  std::vector<std::byte> buffer(layout.header.size());
  TENON_CHECK(read_all(*file, path, 0, buffer.data(), buffer.size()));
  digest.update(buffer.data(), buffer.size());
  const ChunkReader reader{*file, path, manifest_.id, static_cast<int64_t>(layout.header.size())};
  for (const Entry& entry : layout.entries) {
    for (size_t chunk = 0; chunk < entry.part->chunks.size(); ++chunk) {
      TENON_CHECK(reader.read(entry, chunk, buffer));
      digest.update(buffer.data(), buffer.size());
    }
  }
  TENON_TRY(const std::string computed, digest.hex());
  if (computed == manifest_.shards[shard].sha256) return {};
  return damaged(kBadShard,
                 "SHA-256 is " + computed + ", the manifest says " + manifest_.shards[shard].sha256, path);
}

Status Checkpoint::verify_all() const {
  for (uint32_t shard = 0; shard < layouts_.size(); ++shard) {
    TENON_CHECK(check_shard(shard));
    TENON_CHECK(verify_shard(shard));
  }
  return {};
}

}  // namespace tenon::checkpoint
