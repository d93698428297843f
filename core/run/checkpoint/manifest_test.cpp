// Hostile and contradictory manifests. All are signed: it is not the digest that refuses them.
#include "run/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "run/checkpoint/shard_file.h"

namespace tenon::checkpoint {
namespace {

std::string sign(Json document) {
  document.erase("self_sha256");
  document["self_sha256"] = sha256(canonical(document)).value();
  return canonical(document) + "\n";
}

Part part_of(uint32_t shard, int64_t offset, Box box, std::optional<Range> flat = std::nullopt) {
  return {shard, offset, std::move(box), flat, {1}};
}

// Sizes follow from the parts; digests are made up, nothing here opens a file.
std::string text_of(Manifest manifest) {
  for (uint32_t shard = 0; shard < manifest.shards.size(); ++shard) {
    const auto layout = lay_out(manifest.id, manifest.tensors, shard, "");
    manifest.shards[shard] = {0, std::string(64, '0')};
    if (!layout.ok()) continue;
    manifest.shards[shard].bytes = static_cast<int64_t>(layout->header.size()) + layout->data_bytes;
  }
  return manifest_text(manifest).value();
}

// "w" F32 [4,8]: rows 0 and 1 in shard 0, the rest in shard 1, cut at element 5. "b" F32 [3] in shard 1.
Manifest sample() {
  Manifest manifest;
  manifest.id = {"run", 3};
  manifest.meta = R"({"seed":1})";
  manifest.shards.resize(2);
  const Box top = {{0, 2}, {0, 8}}, bottom = {{2, 2}, {0, 8}};
  manifest.tensors["w"] = {
      TENON_F32,
      {4, 8},
      {part_of(0, 0, top), part_of(1, 12, bottom, Range{0, 5}), part_of(1, 32, bottom, Range{5, 11})}};
  manifest.tensors["b"] = {TENON_F32, {3}, {part_of(1, 0, {{0, 3}})}};
  manifest.tensors["none"] = {TENON_F32, {0, 3}, {}};
  return manifest;
}

Error error_of(const std::string& text) {
  const auto parsed = parse_manifest(text, "manifest.json");
  if (!parsed.ok()) return parsed.error();
  const auto layouts = lay_out(*parsed, "manifest.json");
  return layouts.ok() ? Error{"none", "", "", ""} : layouts.error();
}

Error error_after(const std::function<void(Json&)>& change) {
  Json document = Json::parse(text_of(sample()));
  change(document);
  return error_of(sign(document));
}

Error error_of_parts(std::vector<Part> parts) {
  Manifest manifest = sample();
  manifest.tensors["w"].parts = std::move(parts);
  return error_of(text_of(manifest));
}

const Json::json_pointer kParts("/tensors/w/parts");

TEST(Manifest, ReadsBackWhatWasWritten) {
  const std::string text = text_of(sample());
  const auto parsed = parse_manifest(text, "manifest.json");
  ASSERT_TRUE(parsed.ok()) << parsed.error().text();
  EXPECT_EQ(manifest_text(*parsed).value(), text);
  EXPECT_EQ(parsed->tensors.at("w").parts[1].slice().flat, (Range{0, 5}));
  EXPECT_EQ(parsed->tensors.at("none").bytes(), 0);
}

TEST(Manifest, UnsignedChangesAreFound) {
  std::string text = text_of(sample());
  text.replace(text.find("\"step\":3"), 8, "\"step\":4");
  const Error error = error_of(text);
  EXPECT_EQ(error.code, "C003");
  EXPECT_TRUE(error.cause.starts_with("the digest of the document is ")) << error.cause;
}

TEST(Manifest, OtherSpellingsOfTheSameDocumentAreRefused) {
  const std::string text = text_of(sample());
  for (const std::string& other : {" " + text, text + "\n", text.substr(0, text.size() - 1)}) {
    EXPECT_EQ(error_of(other).cause, "is not in canonical form");
  }
  std::string escaped = text;
  escaped.replace(escaped.find("\"run\""), 5, "\"r\\u0075n\"");
  EXPECT_EQ(error_of(escaped).cause, "is not in canonical form");
}

TEST(Manifest, UnknownMissingAndDoubleKeysAreRefused) {
  EXPECT_EQ(error_after([](Json& d) { d["extra"] = 1; }).cause, "unknown key 'extra'");
  EXPECT_EQ(error_after([](Json& d) { d.erase("meta"); }).cause, "key 'meta' is missing");
  const Error part = error_after([](Json& d) { d[kParts][0]["path"] = "/etc/passwd"; });
  EXPECT_EQ(part.cause, "unknown key 'path'");
  EXPECT_EQ(part.place, "manifest.json: tensors.w.parts[0]");
  std::string doubled = text_of(sample());
  doubled.insert(1, "\"step\":3,");
  EXPECT_EQ(error_of(doubled).cause, "key 'step' stands twice in one object");
}

TEST(Manifest, NotAManifestIsRefused) {
  for (const char* text : {"", "[]", "null", "7", "{}", "{", "\xff", "{\"self_sha256\":1}"}) {
    EXPECT_EQ(error_of(text).code, "C003") << text;
  }
  EXPECT_EQ(error_of(std::string(100000, '[')).code, "C003");
  EXPECT_EQ(error_after([](Json& d) { d["format"] = "other"; }).cause,
            "not a document of format 'tenon.checkpoint'");
}

TEST(Manifest, NewerFormatIsToldFromDamage) {
  const Error error = error_after([](Json& d) { d["version"] = 2; });
  EXPECT_EQ(error.code, "C013");
  EXPECT_EQ(error.cause, "format version 2, this Tenon reads version 1");
}

TEST(Manifest, NamesThatLookLikePathsAreRefused) {
  for (const char* name : {"../x", "/etc/passwd", "a//b", "a/../b", "a/./b", "a/", ".", "__metadata__", "",
                           "a b", "a\"b", "a\\b", "a[0:1]", "a{0:1}", "\n", "\xc3\xa9"}) {
    const Error error = error_after([&](Json& d) { d["tensors"][name] = d["tensors"]["none"]; });
    EXPECT_EQ(error.code, "C003") << name;
    EXPECT_EQ(error.place, "manifest.json: tensors") << name;
  }
  const Error run = error_after([](Json& d) { d["run_id"] = "../../etc"; });
  EXPECT_EQ(run.cause, "run id '../../etc': must be 1 to 64 of A-Z a-z 0-9 . _ -");
}

TEST(Manifest, HugeLengthsAreRefusedWithoutAllocation) {
  const std::vector<Json> huge = {
      9223372036854775808ULL, 18446744073709551615ULL, 1e300, -1, "4", nullptr, 4.0};
  for (const Json& value : huge) {
    for (const char* path :
         {"/tensors/w/shape/0", "/tensors/w/parts/0/offset", "/tensors/w/parts/0/shard",
          "/tensors/w/parts/0/box/0/1", "/tensors/w/parts/1/flat/0", "/shards/0/bytes", "/step"}) {
      const Error error = error_after([&](Json& d) { d[Json::json_pointer(path)] = value; });
      EXPECT_EQ(error.code, "C003") << path << " = " << value;
      EXPECT_EQ(error.cause, "must be an integer from 0 to 2^63 - 1") << path << " = " << value;
    }
  }
  EXPECT_EQ(error_after([](Json& d) {
              d["tensors"]["w"]["shape"] = {INT64_MAX, INT64_MAX};
            }).cause,
            "the tensor has more than 2^58 elements");
  EXPECT_EQ(error_after([](Json& d) { d["shards"][0]["bytes"] = INT64_MAX; }).code, "C003");
  EXPECT_EQ(error_after([](Json& d) { d[kParts][0]["offset"] = INT64_MAX; }).code, "C003");
  EXPECT_EQ(error_after([](Json& d) { d[kParts][0]["shard"] = INT64_MAX; }).cause, "no such shard");
  EXPECT_EQ(error_after([](Json& d) { d[kParts][0]["shard"] = 2; }).cause, "shard 2 is not listed");
}

TEST(Manifest, BoxesAndRangesOutsideTheTensorAreRefused) {
  const auto cause = [](const char* path, const Json& value) {
    return error_after([&](Json& d) { d[Json::json_pointer(path)] = value; }).cause;
  };
  EXPECT_EQ(cause("/tensors/w/parts/0/box/0", {3, 2}), "lies outside the tensor");
  EXPECT_EQ(cause("/tensors/w/parts/0/box/0", {INT64_MAX, INT64_MAX}), "lies outside the tensor");
  EXPECT_EQ(cause("/tensors/w/parts/0/box", Json::array({{0, 2}})), "must have one range per dim");
  EXPECT_EQ(cause("/tensors/w/parts/1/flat", {10, 7}), "lies outside the box");
  EXPECT_EQ(cause("/tensors/w/parts/1/flat", {0, 16}), "is the whole box and must not be given");
  EXPECT_EQ(cause("/tensors/w/parts/1/flat", {3, 0}), "holds no elements");
  EXPECT_EQ(cause("/tensors/w/parts/0/chunks", Json::array()), "must have 1 checksums");
  EXPECT_EQ(cause("/tensors/w/parts/0/chunks/0", "000000000000000G"),
            "must be 16 lower-case hexadecimal digits");
  EXPECT_EQ(cause("/tensors/w/dtype", "F99"), "unknown element type 'F99'");
}

TEST(Manifest, GapsAndOverlapsNameTheTensorAndTheElements) {
  const Box top = {{0, 2}, {0, 8}}, bottom = {{2, 2}, {0, 8}};
  const auto cut = [&](Range first, Range second) {
    return error_of_parts(
        {part_of(0, 0, top), part_of(1, 12, bottom, first), part_of(1, 12 + first.size * 4, bottom, second)});
  };
  const Error gap = cut({0, 5}, {6, 10});
  EXPECT_EQ(gap.code, "C008");
  EXPECT_EQ(gap.cause, "elements 5 to 5 of box [2:4,0:8] are not saved");
  EXPECT_EQ(gap.place, "manifest.json: tensor 'w'");
  EXPECT_EQ(cut({0, 5}, {5, 10}).cause, "elements 15 to 15 of box [2:4,0:8] are not saved");
  EXPECT_EQ(cut({1, 4}, {5, 11}).cause, "elements 0 to 0 of box [2:4,0:8] are not saved");
  EXPECT_EQ(cut({0, 5}, {4, 12}).cause, "elements 4 to 4 of box [2:4,0:8] are saved twice");
  EXPECT_EQ(error_of_parts({part_of(0, 0, top)}).cause, "16 of 32 elements are saved");
  EXPECT_EQ(error_of_parts({part_of(0, 0, top), part_of(0, 64, {{1, 3}, {0, 8}})}).cause,
            "boxes [0:2,0:8] and [1:4,0:8] overlap");
  EXPECT_EQ(error_of_parts({part_of(0, 0, top), part_of(0, 64, top)}).cause,
            "elements 0 to 15 of box [0:2,0:8] are saved twice");
}

TEST(Manifest, HolesAndOverlapsInAShardAreRefused) {
  EXPECT_EQ(error_after([](Json& d) { d[kParts][1]["offset"] = 16; }).cause,
            "shard 1: data at byte 16, expected at 12");
  EXPECT_EQ(error_after([](Json& d) { d[kParts][1]["offset"] = 0; }).code, "C003");
  EXPECT_EQ(error_after([](Json& d) { d["shards"][0]["bytes"] = 4096 + 65; }).cause,
            "shard 0 is said to have 4161 bytes, its parts need 64 and a header of 4096");
}

}  // namespace
}  // namespace tenon::checkpoint
