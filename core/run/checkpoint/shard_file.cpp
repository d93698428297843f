#include "run/checkpoint/shard_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/json.h"
#include "run/checkpoint/errors.h"

namespace tenon::checkpoint {
namespace {

Shape stored_shape(const Part& part) {
  if (part.flat) return {part.flat->size};
  return sizes_of(part.box);
}

std::string header_text(const SaveId& id, uint32_t shard, const std::vector<Entry>& entries) {
  Json header = Json::object();
  // "format": "pt" is what common tools look for before they open a file.
  header["__metadata__"] = {{"format", "pt"},
                            {"tenon_run", id.run_id},
                            {"tenon_step", std::to_string(id.step)},
                            {"tenon_shard", std::to_string(shard)}};
  for (const Entry& entry : entries) {
    header[stored_name(*entry.name, *entry.tensor, *entry.part)] = {
        {"dtype", dtype_name(entry.tensor->dtype)},
        {"shape", stored_shape(*entry.part)},
        {"data_offsets", {entry.part->offset, entry.part->offset + entry.bytes()}}};
  }
  std::string json = canonical(header);
  const size_t used = sizeof(uint64_t) + json.size();
  json.append((kHeaderAlignment - used % kHeaderAlignment) % kHeaderAlignment, ' ');
  std::string text;
  for (int byte = 0; byte < 8; ++byte) text += static_cast<char>(json.size() >> (8 * byte) & 255);
  return text + json;
}

// `entries` in any order.
Result<ShardLayout> lay_out_entries(const SaveId& id, uint32_t shard, std::vector<Entry> entries,
                                    const std::string& file) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& one, const Entry& other) { return one.part->offset < other.part->offset; });
  ShardLayout layout;
  for (const Entry& entry : entries) {
    if (entry.part->offset != layout.data_bytes) {
      return damaged(kBadManifest,
                     "shard " + std::to_string(shard) + ": data at byte " +
                         std::to_string(entry.part->offset) + ", expected at " +
                         std::to_string(layout.data_bytes),
                     file + ": tensor '" + *entry.name + "'");
    }
    if (__builtin_add_overflow(layout.data_bytes, entry.bytes(), &layout.data_bytes)) {
      return damaged(kBadManifest, "shard " + std::to_string(shard) + " is larger than 2^63 bytes", file);
    }
  }
  layout.header = header_text(id, shard, entries);
  layout.entries = std::move(entries);
  if (layout.header.size() > kMaxHeaderBytes) {
    return damaged(kBadManifest, "shard " + std::to_string(shard) + ": the header exceeds 100 MB", file);
  }
  return layout;
}

}  // namespace

std::string shard_file_name(uint32_t shard) {
  std::string digits = std::to_string(shard);
  digits.insert(0, digits.size() < 5 ? 5 - digits.size() : 0, '0');
  return "shard-" + digits + ".safetensors";
}

std::string stored_name(const std::string& name, const Tensor& tensor, const Part& part) {
  std::string text = name;
  if (part.flat || part.box != whole_box(tensor.shape)) text += to_text(part.box);
  if (part.flat) {
    text += "{" + std::to_string(part.flat->start) + ":" +
            std::to_string(part.flat->start + part.flat->size) + "}";
  }
  return text;
}

bool stored_before(const Entry& one, const Entry& other) {
  const auto key = [](const Entry& entry) {
    return std::make_tuple(-dtype_bytes(entry.tensor->dtype), *entry.name, entry.part->box,
                           entry.part->slice().flat);
  };
  return key(one) < key(other);
}

Result<ShardLayout> lay_out(const SaveId& id, const std::map<std::string, Tensor>& tensors, uint32_t shard,
                            const std::string& file) {
  std::vector<Entry> entries;
  for (const auto& [name, tensor] : tensors) {
    for (const Part& part : tensor.parts) {
      if (part.shard == shard) entries.push_back({&name, &tensor, &part});
    }
  }
  return lay_out_entries(id, shard, std::move(entries), file);
}

Result<std::vector<ShardLayout>> lay_out(const Manifest& manifest, const std::string& file) {
  std::vector<std::vector<Entry>> entries(manifest.shards.size());
  for (const auto& [name, tensor] : manifest.tensors) {
    for (const Part& part : tensor.parts) {
      if (part.shard >= entries.size()) {
        return damaged(kBadManifest, "shard " + std::to_string(part.shard) + " is not listed",
                       file + ": tensor '" + name + "'");
      }
      entries[part.shard].push_back({&name, &tensor, &part});
    }
  }
  std::vector<ShardLayout> layouts;
  for (uint32_t shard = 0; shard < entries.size(); ++shard) {
    TENON_TRY(ShardLayout layout, lay_out_entries(manifest.id, shard, std::move(entries[shard]), file));
    const int64_t header = static_cast<int64_t>(layout.header.size());
    if (manifest.shards[shard].bytes - header != layout.data_bytes) {
      return damaged(kBadManifest,
                     "shard " + std::to_string(shard) + " is said to have " +
                         std::to_string(manifest.shards[shard].bytes) + " bytes, its parts need " +
                         std::to_string(layout.data_bytes) + " and a header of " + std::to_string(header),
                     file);
    }
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

}  // namespace tenon::checkpoint
