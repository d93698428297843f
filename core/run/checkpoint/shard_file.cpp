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

uint64_t length_of(std::string_view header) {
  uint64_t out = 0;
  for (size_t byte = 8; byte-- > 0;) out = out << 8 | static_cast<unsigned char>(header[byte]);
  return out;
}

// What entries of a shard's header say that those of the manifest do not; "": nothing.
std::string difference(const Json& stored, const Json& expected) {
  if (!stored.is_object()) return "is no JSON object";
  for (const auto& [name, entry] : expected.items()) {
    const auto found = stored.find(name);
    if (found == stored.end()) return "lacks '" + name + "'";
    if (*found != entry)
      return "says of '" + name + "' " + canonical(*found).substr(0, 200) + ", the manifest " +
             canonical(entry);
  }
  for (const auto& [name, entry] : stored.items()) {
    if (!expected.contains(name)) return "names '" + name.substr(0, 200) + "', which the manifest does not";
  }
  return "";
}

// Of a header that is not the expected one.
std::string explain(std::string_view stored, std::string_view expected) {
  if (stored.size() < expected.size())
    return "ends within the file's first " + std::to_string(expected.size()) + " bytes";
  if (length_of(stored) != length_of(expected)) {
    return "claims " + std::to_string(length_of(stored)) + " bytes, the manifest needs " +
           std::to_string(length_of(expected));
  }
  const auto json = [](std::string_view header) {
    return parse_json(std::string(header.substr(sizeof(uint64_t))), "");
  };
  const auto found = json(stored);
  if (!found.ok()) return "cannot be read: " + found.error().cause;
  if (std::string what = difference(*found, *json(expected)); !what.empty()) return what;
  const auto at = std::ranges::mismatch(stored, expected).in1 - stored.begin();
  return "is written in another form than the manifest's, from byte " + std::to_string(at);
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

Status check_header(const ShardLayout& layout, std::string_view stored, const std::string& path) {
  if (stored == layout.header) return {};
  return damaged(kBadShard, "the header " + explain(stored, layout.header), path);
}

}  // namespace tenon::checkpoint
