// Manifest <-> canonical JSON. Reading refuses whatever writing would not have produced.
#include "run/checkpoint/manifest.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "run/checkpoint/errors.h"

namespace tenon::checkpoint {
namespace {

constexpr const char* kManifestFormat = "tenon.checkpoint";
constexpr const char* kReportFormat = "tenon.shard-report";

struct DtypeRow {
  const char* name;
  int64_t bytes;
};
// SYNC: order of TENON_F64 ... in tenon/base.h
constexpr std::array<DtypeRow, 7> kDtypes{
    {{"F64", 8}, {"F32", 4}, {"BF16", 2}, {"F16", 2}, {"I64", 8}, {"I32", 4}, {"U8", 1}}};

// Where in which document we are, and with which code to complain.
struct DocumentPlace {
  const char* code;
  std::string file;
  std::string entry;

  DocumentPlace at(const std::string& key) const {
    return {code, file, entry.empty() ? key : entry + "." + key};
  }
  DocumentPlace at(size_t i) const { return {code, file, entry + "[" + std::to_string(i) + "]"}; }
  Error error(std::string cause) const {
    return damaged(code, std::move(cause), entry.empty() ? file : file + ": " + entry);
  }
};

Status check_keys(const Json& object, const std::vector<std::string>& required, const std::string& optional,
                  const DocumentPlace& place) {
  if (!object.is_object()) return place.error("must be an object");
  for (const std::string& key : required) {
    if (!object.contains(key)) return place.error("key '" + key + "' is missing");
  }
  for (const auto& [key, value] : object.items()) {
    if (key != optional && std::find(required.begin(), required.end(), key) == required.end()) {
      return place.error("unknown key '" + key.substr(0, 80) + "'");
    }
  }
  return {};
}

Result<int64_t> read_integer(const Json& value, const DocumentPlace& place) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t{INT64_MAX});
  if (!fits || value.get<int64_t>() < 0) return place.error("must be an integer from 0 to 2^63 - 1");
  return value.get<int64_t>();
}

Result<std::string> read_string(const Json& value, const DocumentPlace& place) {
  if (!value.is_string()) return place.error("must be a string");
  return value.get<std::string>();
}

// A fixed number of lower-case hexadecimal digits.
Result<std::string> read_hex(const Json& value, size_t digits, const DocumentPlace& place) {
  TENON_TRY(std::string text, read_string(value, place));
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (text.size() != digits || !std::all_of(text.begin(), text.end(), is_digit)) {
    return place.error("must be " + std::to_string(digits) + " lower-case hexadecimal digits");
  }
  return text;
}

std::string hex16(uint64_t value) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (size_t i = 16; i-- > 0; value >>= 4) text[i] = kDigits[value & 15];
  return text;
}

Result<uint32_t> read_dtype(const Json& value, const DocumentPlace& place) {
  TENON_TRY(const std::string text, read_string(value, place));
  for (uint32_t i = 0; i < kDtypes.size(); ++i) {
    if (text == kDtypes[i].name) return i;
  }
  return place.error("unknown element type '" + text.substr(0, 80) + "'");
}

Result<Shape> read_shape(const Json& value, const DocumentPlace& place) {
  if (!value.is_array() || value.size() > kMaxDims)
    return place.error("must be an array of at most 16 sizes");
  Shape shape;
  for (size_t i = 0; i < value.size(); ++i) {
    TENON_TRY(const int64_t size, read_integer(value[i], place.at(i)));
    shape.push_back(size);
  }
  if (!num_elements(shape)) return place.error("the tensor has more than 2^58 elements");
  return shape;
}

Result<Range> read_range(const Json& value, const DocumentPlace& place) {
  if (!value.is_array() || value.size() != 2) return place.error("must be [start, size]");
  TENON_TRY(const int64_t start, read_integer(value[0], place.at(0)));
  TENON_TRY(const int64_t size, read_integer(value[1], place.at(1)));
  return Range{start, size};
}

Result<Box> read_box(const Json& value, const Shape& shape, const DocumentPlace& place) {
  if (!value.is_array() || value.size() != shape.size()) return place.error("must have one range per dim");
  Box box;
  for (size_t i = 0; i < value.size(); ++i) {
    TENON_TRY(const Range range, read_range(value[i], place.at(i)));
    box.push_back(range);
  }
  if (!inside(box, shape)) return place.error("lies outside the tensor");
  return box;
}

Status read_extent(const Json& value, const Shape& shape, Part& part, const DocumentPlace& place) {
  TENON_TRY(part.box, read_box(value["box"], shape, place.at("box")));
  const int64_t elements = num_elements(part.box);
  if (value.contains("flat")) {
    TENON_TRY(part.flat, read_range(value["flat"], place.at("flat")));
    if (!inside(*part.flat, elements)) return place.at("flat").error("lies outside the box");
    if (part.flat->size == elements) return place.at("flat").error("is the whole box and must not be given");
  }
  if (part.slice().flat.size == 0) return place.error("holds no elements");
  return {};
}

Status read_chunks(const Json& value, int64_t bytes, Part& part, const DocumentPlace& place) {
  const int64_t expected = (bytes + kChunkBytes - 1) / kChunkBytes;
  if (!value.is_array() || static_cast<int64_t>(value.size()) != expected) {
    return place.error("must have " + std::to_string(expected) + " checksums");
  }
  for (size_t i = 0; i < value.size(); ++i) {
    TENON_TRY(const std::string text, read_hex(value[i], 16, place.at(i)));
    uint64_t checksum = 0;
    std::from_chars(text.data(), text.data() + text.size(), checksum, 16);
    part.chunks.push_back(checksum);
  }
  return {};
}

Result<Part> read_part(const Json& value, const Tensor& tensor, const DocumentPlace& place) {
  TENON_CHECK(check_keys(value, {"shard", "offset", "box", "chunks"}, "flat", place));
  Part part;
  TENON_TRY(const int64_t shard, read_integer(value["shard"], place.at("shard")));
  if (shard >= kMaxShards) return place.at("shard").error("no such shard");
  part.shard = static_cast<uint32_t>(shard);
  TENON_TRY(part.offset, read_integer(value["offset"], place.at("offset")));
  TENON_CHECK(read_extent(value, tensor.shape, part, place));
  const int64_t bytes = part.slice().flat.size * dtype_bytes(tensor.dtype);
  TENON_CHECK(read_chunks(value["chunks"], bytes, part, place.at("chunks")));
  return part;
}

Result<Tensor> read_tensor(const Json& value, const DocumentPlace& place) {
  TENON_CHECK(check_keys(value, {"dtype", "shape", "parts"}, "", place));
  Tensor tensor;
  TENON_TRY(tensor.dtype, read_dtype(value["dtype"], place.at("dtype")));
  TENON_TRY(tensor.shape, read_shape(value["shape"], place.at("shape")));
  const Json& parts = value["parts"];
  if (!parts.is_array()) return place.at("parts").error("must be an array");
  for (size_t i = 0; i < parts.size(); ++i) {
    TENON_TRY(Part part, read_part(parts[i], tensor, place.at("parts").at(i)));
    tensor.parts.push_back(std::move(part));
  }
  return tensor;
}

Result<std::map<std::string, Tensor>> read_tensors(const Json& value, const DocumentPlace& place) {
  if (!value.is_object()) return place.error("must be an object");
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, entry] : value.items()) {
    const Status valid = check_tensor_name(name);
    if (!valid.ok()) return place.error(valid.error().cause);
    TENON_TRY(Tensor tensor, read_tensor(entry, place.at(name)));
    tensors.emplace(name, std::move(tensor));
  }
  return tensors;
}

Result<SaveId> read_id(const Json& value, const DocumentPlace& place) {
  SaveId id;
  TENON_TRY(id.run_id, read_string(value["run_id"], place.at("run_id")));
  TENON_TRY(id.step, read_integer(value["step"], place.at("step")));
  const Status valid = check_id(id);
  if (!valid.ok()) return place.error(valid.error().cause);
  return id;
}

Result<Shard> read_shard(const Json& value, const DocumentPlace& place) {
  Shard shard;
  TENON_TRY(shard.bytes, read_integer(value["bytes"], place.at("bytes")));
  TENON_TRY(shard.sha256, read_hex(value["sha256"], 64, place.at("sha256")));
  return shard;
}

Status check_format(const Json& document, const char* format, const DocumentPlace& place) {
  if (!document.is_object() || document.value("format", Json()) != format) {
    return place.error(std::string("not a document of format '") + format + "'");
  }
  TENON_TRY(const int64_t version, read_integer(document.value("version", Json()), place.at("version")));
  if (version == kFormatVersion) return {};
  return Error{kOtherVersion,
               "format version " + std::to_string(version) + ", this Tenon reads version " +
                   std::to_string(kFormatVersion),
               place.file, "use the Tenon that wrote it", TENON_E_VERSION};
}

// The digest is that of the canonical text without the digest itself, in every version of the format: damage
// is told from another version. Takes the digest out of the document.
Status check_self_digest(const std::string& text, Json& document, const DocumentPlace& place) {
  if (!document.is_object()) return place.error("must be an object");
  if (canonical(document) + "\n" != text) return place.error("is not in canonical form");
  TENON_TRY(const std::string stored, read_hex(document["self_sha256"], 64, place.at("self_sha256")));
  document.erase("self_sha256");
  TENON_TRY(const std::string computed, sha256(canonical(document)));
  if (computed != stored) return place.error("the digest of the document is " + computed + ", not " + stored);
  return {};
}

Result<Json> read_document(const std::string& text, const DocumentPlace& place) {
  auto document = parse_json(text, place.file);
  if (!document.ok()) return place.error(document.error().cause);
  return std::move(document).value();
}

Json to_json(const Range& range) { return Json::array({range.start, range.size}); }

Json to_json(const Part& part) {
  Json box = Json::array();
  for (const Range& range : part.box) box.push_back(to_json(range));
  Json chunks = Json::array();
  for (const uint64_t checksum : part.chunks) chunks.push_back(hex16(checksum));
  Json json{{"shard", part.shard}, {"offset", part.offset}, {"box", box}, {"chunks", chunks}};
  if (part.flat) json["flat"] = to_json(*part.flat);
  return json;
}

Json to_json(const std::map<std::string, Tensor>& tensors) {
  Json json = Json::object();
  for (const auto& [name, tensor] : tensors) {
    Json parts = Json::array();
    for (const Part& part : tensor.parts) parts.push_back(to_json(part));
    json[name] = {{"dtype", dtype_name(tensor.dtype)}, {"shape", tensor.shape}, {"parts", parts}};
  }
  return json;
}

}  // namespace

int64_t Tensor::bytes() const { return elements() * dtype_bytes(dtype); }

const char* dtype_name(uint32_t dtype) { return dtype < kDtypes.size() ? kDtypes[dtype].name : ""; }
int64_t dtype_bytes(uint32_t dtype) { return dtype < kDtypes.size() ? kDtypes[dtype].bytes : 0; }

Result<Manifest> parse_manifest(const std::string& text, const std::string& file) {
  const DocumentPlace place{kBadManifest, file, ""};
  TENON_TRY(Json document, read_document(text, place));
  TENON_CHECK(check_self_digest(text, document, place));
  TENON_CHECK(check_format(document, kManifestFormat, place));
  TENON_CHECK(
      check_keys(document, {"format", "version", "run_id", "step", "meta", "shards", "tensors"}, "", place));
  Manifest manifest;
  TENON_TRY(manifest.id, read_id(document, place));
  if (!document["meta"].is_object()) return place.at("meta").error("must be an object");
  manifest.meta = canonical(document["meta"]);
  const Json& shards = document["shards"];
  if (!shards.is_array()) return place.at("shards").error("must be an array");
  for (size_t i = 0; i < shards.size(); ++i) {
    TENON_CHECK(check_keys(shards[i], {"bytes", "sha256"}, "", place.at("shards").at(i)));
    TENON_TRY(Shard shard, read_shard(shards[i], place.at("shards").at(i)));
    manifest.shards.push_back(std::move(shard));
  }
  TENON_TRY(manifest.tensors, read_tensors(document["tensors"], place.at("tensors")));
  for (const auto& [name, tensor] : manifest.tensors) TENON_CHECK(check_coverage(name, tensor, file));
  return manifest;
}

Result<std::string> manifest_text(const Manifest& manifest) {
  TENON_TRY(const Json meta, parse_json(manifest.meta, "meta"));
  Json shards = Json::array();
  for (const Shard& shard : manifest.shards)
    shards.push_back({{"bytes", shard.bytes}, {"sha256", shard.sha256}});
  Json document{{"format", kManifestFormat},
                {"version", kFormatVersion},
                {"run_id", manifest.id.run_id},
                {"step", manifest.id.step},
                {"meta", meta},
                {"shards", shards},
                {"tensors", to_json(manifest.tensors)}};
  TENON_TRY(const std::string digest, sha256(canonical(document)));
  document["self_sha256"] = digest;
  return canonical(document) + "\n";
}

Result<Report> parse_report(const std::string& text) {
  const DocumentPlace place{kBadReport, "shard report", ""};
  TENON_TRY(Json document, read_document(text, place));
  TENON_CHECK(check_format(document, kReportFormat, place));
  TENON_CHECK(check_keys(
      document, {"format", "version", "attempt", "shard", "run_id", "step", "bytes", "sha256", "tensors"}, "",
      place));
  Report report;
  TENON_TRY(report.attempt, read_string(document["attempt"], place.at("attempt")));
  TENON_TRY(const int64_t shard, read_integer(document["shard"], place.at("shard")));
  if (shard >= kMaxShards) return place.at("shard").error("no such shard");
  report.shard = static_cast<uint32_t>(shard);
  TENON_TRY(report.id, read_id(document, place));
  TENON_TRY(report.file, read_shard(document, place));
  TENON_TRY(report.tensors, read_tensors(document["tensors"], place.at("tensors")));
  return report;
}

std::string report_text(const Report& report) {
  return canonical(Json{{"format", kReportFormat},
                        {"version", kFormatVersion},
                        {"attempt", report.attempt},
                        {"shard", report.shard},
                        {"run_id", report.id.run_id},
                        {"step", report.id.step},
                        {"bytes", report.file.bytes},
                        {"sha256", report.file.sha256},
                        {"tensors", to_json(report.tensors)}});
}

}  // namespace tenon::checkpoint
