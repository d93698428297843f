// Damage to every file of a checkpoint is found before its content is used, and named.
#include <gtest/gtest.h>

#include <random>

#include "memory_storage.h"
#include "sample_state.h"

namespace tenon::checkpoint {
namespace {

constexpr uint64_t kStep = 20;
const std::string kDirectory = std::string(kRoot) + "/step-20";

std::string shard(uint32_t number) { return kDirectory + "/" + shard_file_name(number); }

MemoryStorage saved_sample() {
  MemoryStorage storage;
  const auto saved = save_sample(storage, kRoot, kStep, {.keep = 1});
  EXPECT_TRUE(saved.ok()) << saved.error().text();
  return storage;
}

Error open_error(Storage& storage) {
  const auto checkpoint = Checkpoint::open(storage, kDirectory);
  return checkpoint.ok() ? Error{"none", "", "", ""} : checkpoint.error();
}

Error verify_error(Storage& storage) {
  const auto checkpoint = Checkpoint::open(storage, kDirectory);
  if (!checkpoint.ok()) return checkpoint.error();
  const Status status = checkpoint->verify_all();
  return status.ok() ? Error{"none", "", "", ""} : status.error();
}

// Opens with each byte of `path` changed in one bit, then in all; each must be refused, with the file as the
// place.
void flip_bytes(MemoryStorage& storage, const std::string& path, size_t bytes, const std::string& code) {
  std::string& content = *storage.content(path);
  for (size_t at = 0; at < bytes; ++at) {
    for (const int mask : {1 << at % 8, 255}) {
      content[at] = static_cast<char>(content[at] ^ mask);
      const Error error = open_error(storage);
      EXPECT_EQ(error.code, code) << path << ", byte " << at << ", mask " << mask << ": " << error.text();
      EXPECT_TRUE(error.place.starts_with(path)) << error.text();
      content[at] = static_cast<char>(content[at] ^ mask);
    }
  }
  EXPECT_EQ(open_error(storage).code, "none");
}

TEST(CheckpointDamage, EveryByteOfTheManifestCounts) {
  MemoryStorage storage = saved_sample();
  const std::string path = kDirectory + "/" + kManifestFile;
  flip_bytes(storage, path, storage.content(path)->size(), "C003");
}

TEST(CheckpointDamage, EveryByteOfTheHeadersCounts) {
  MemoryStorage storage = saved_sample();
  const auto checkpoint = Checkpoint::open(storage, kDirectory);
  ASSERT_TRUE(checkpoint.ok());
  const auto layouts = lay_out(checkpoint->manifest(), "");
  for (uint32_t number = 0; number < 2; ++number) {
    flip_bytes(storage, shard(number), layouts.value()[number].header.size(), "C004");
  }
}

// Which tensor lies at byte `at` of the shard's file.
std::string tensor_at(const ShardLayout& layout, size_t at) {
  const int64_t offset = static_cast<int64_t>(at - layout.header.size());
  for (const Entry& entry : layout.entries) {
    if (offset >= entry.part->offset && offset < entry.part->offset + entry.bytes()) return *entry.name;
  }
  return "";
}

void flip_payload_bit(MemoryStorage& storage, const Checkpoint& checkpoint, const ShardLayout& layout,
                      uint32_t number, size_t at, int bit) {
  std::string& content = *storage.content(shard(number));
  const std::string name = tensor_at(layout, at);
  content[at] = static_cast<char>(content[at] ^ (1 << bit));
  if (bit == 0) {
    EXPECT_EQ(verify_error(storage).code, "C006");
  }
  std::string bytes(static_cast<size_t>(checkpoint.manifest().tensors.at(name).bytes()), '\0');
  const Status read = checkpoint.read(name, bytes.data(), bytes.size());
  EXPECT_FALSE(read.ok()) << "byte " << at << " of '" << name << "' was used";
  if (!read.ok()) {
    EXPECT_EQ(read.error().code, "C006");
    EXPECT_EQ(read.error().place, shard(number) + ": tensor '" + name + "'");
    EXPECT_NE(read.error().cause.find("shard " + std::to_string(number) + ", chunk 0"), std::string::npos)
        << read.error().cause;
  }
  content[at] = static_cast<char>(content[at] ^ (1 << bit));
}

TEST(CheckpointDamage, EveryBitOfASmallPayloadCounts) {
  MemoryStorage storage = saved_sample();
  const auto checkpoint = Checkpoint::open(storage, kDirectory);
  ASSERT_TRUE(checkpoint.ok());
  const auto layouts = lay_out(checkpoint->manifest(), "");
  int flips = 0;
  for (uint32_t number = 0; number < 2; ++number) {
    const ShardLayout& layout = layouts.value()[number];
    for (size_t at = layout.header.size(); at < storage.content(shard(number))->size(); ++at) {
      for (int bit = 0; bit < 8; ++bit, ++flips)
        flip_payload_bit(storage, *checkpoint, layout, number, at, bit);
    }
  }
  EXPECT_GE(flips, 10000);
  EXPECT_EQ(verify_error(storage).code, "none");
}

// A tensor of five chunks, the last one short.
MemoryStorage saved_large(const std::string& data) {
  MemoryStorage storage;
  const SaveId id{kRun, static_cast<int64_t>(kStep)};
  const TensorPart part{"large",
                        TENON_U8,
                        {static_cast<int64_t>(data.size())},
                        {{0, static_cast<int64_t>(data.size())}},
                        std::nullopt,
                        data.data(),
                        data.size()};
  const auto tmp = begin(storage, kRoot, id, "n");
  const auto report = write_shard(storage, tmp.value(), id, 0, std::span(&part, 1));
  const auto done =
      commit(storage, kRoot, tmp.value(), id, {report.value()}, "{}", {.verify_payload = false});
  EXPECT_TRUE(done.ok()) << done.error().text();
  return storage;
}

TEST(CheckpointDamage, SampledBitsOfALargePayloadNameTheirChunk) {
  std::mt19937_64 random(3);
  std::string data(static_cast<size_t>(4 * kChunkBytes + 12345), '\0');
  for (char& byte : data) byte = static_cast<char>(random());
  MemoryStorage storage = saved_large(data);
  const auto checkpoint = Checkpoint::open(storage, kDirectory);
  std::string& content = *storage.content(shard(0));
  const size_t header = content.size() - data.size();
  for (int trial = 0; trial < 2000; ++trial) {
    const size_t at = random() % data.size();
    const char mask = static_cast<char>(1 << random() % 8);
    content[header + at] = static_cast<char>(content[header + at] ^ mask);
    char byte = 0;
    const auto size = static_cast<int64_t>(data.size());
    const Status read = checkpoint->read("large", {{{0, size}}, {static_cast<int64_t>(at), 1}}, &byte, 1);
    ASSERT_FALSE(read.ok()) << "byte " << at << " was used";
    EXPECT_EQ(read.error().code, "C006");
    const std::string chunk = "chunk " + std::to_string(at / kChunkBytes) + " ";
    EXPECT_NE(read.error().cause.find(chunk), std::string::npos) << read.error().cause;
    content[header + at] = static_cast<char>(content[header + at] ^ mask);
  }
}

TEST(CheckpointDamage, SwappedChunksOfOneTensorAreFound) {
  // Equal content in both chunks: only the seed tells them apart, so nothing may change when they are swapped
  // ...
  std::string data(static_cast<size_t>(2 * kChunkBytes), 'a');
  MemoryStorage storage = saved_large(data);
  EXPECT_EQ(verify_error(storage).code, "none");
  const auto checkpoint = Checkpoint::open(storage, kDirectory);
  const auto& chunks = checkpoint->manifest().tensors.at("large").parts[0].chunks;
  EXPECT_NE(chunks[0], chunks[1]) << "... but their checksums differ by their place";
}

TEST(CheckpointDamage, TruncatedAndExtendedFilesAreFound) {
  for (const uint32_t number : {0U, 1U}) {
    const size_t size = saved_sample().content(shard(number))->size();
    for (const size_t length : {size_t{0}, size_t{7}, size_t{4096}, size - 1, size + 1}) {
      MemoryStorage storage = saved_sample();
      storage.content(shard(number))->resize(length);
      const Error error = open_error(storage);
      EXPECT_EQ(error.code, "C004");
      EXPECT_EQ(error.place, shard(number));
      EXPECT_EQ(error.cause,
                "has " + std::to_string(length) + " bytes, the manifest says " + std::to_string(size));
    }
  }
  MemoryStorage storage = saved_sample();
  std::string& manifest = *storage.content(kDirectory + "/manifest.json");
  for (const std::string whole = manifest; !manifest.empty();) {
    manifest.pop_back();
    EXPECT_EQ(open_error(storage).code, "C003") << "cut to " << manifest.size() << " bytes";
  }
}

TEST(CheckpointDamage, SwappedShardsAreFound) {
  MemoryStorage storage = saved_sample();
  storage.content(shard(0))->swap(*storage.content(shard(1)));
  EXPECT_EQ(open_error(storage).code, "C004");
}

TEST(CheckpointDamage, ShardOfAnotherSaveIsFound) {
  MemoryStorage storage = saved_sample(), other;
  ASSERT_TRUE(save_sample(other, kRoot, 21, {.keep = 1}).ok());
  // Give the stale shard the right header, so that only the data can betray it.
  const std::string stale = *other.content(std::string(kRoot) + "/step-21/" + shard_file_name(1));
  std::string& content = *storage.content(shard(1));
  const auto checkpoint = Checkpoint::open(storage, kDirectory);
  const size_t header = lay_out(checkpoint->manifest(), "").value()[1].header.size();
  content = content.substr(0, header) + stale.substr(header);
  EXPECT_EQ(open_error(storage).code, "none");
  EXPECT_EQ(verify_error(storage).code, "C006");
}

TEST(CheckpointDamage, WrongFileDigestIsFound) {
  // Chunks and header are right: only the SHA-256 of the file is not that of the manifest.
  MemoryStorage storage = saved_sample();
  const auto checkpoint = Checkpoint::open(storage, kDirectory);
  Manifest manifest = checkpoint->manifest();
  manifest.shards[1].sha256 = std::string(64, 'a');
  *storage.content(kDirectory + "/manifest.json") = manifest_text(manifest).value();
  EXPECT_EQ(open_error(storage).code, "none");
  const Error error = verify_error(storage);
  EXPECT_EQ(error.code, "C004");
  EXPECT_EQ(error.place, shard(1));
}

TEST(CheckpointDamage, DuplicatedAndMissingShardsAreFound) {
  MemoryStorage storage = saved_sample();
  *storage.content(shard(1)) = *storage.content(shard(0));
  EXPECT_EQ(open_error(storage).code, "C004");
  storage = saved_sample();
  storage.put(shard(2), *storage.content(shard(0)));
  EXPECT_EQ(open_error(storage).text(),
            "error[C004]: the manifest does not list this shard\n"
            "  --> /checkpoints/step-20/shard-00002.safetensors\n"
            "  fix: use an older checkpoint or restore this one from a copy");
  storage = saved_sample();
  ASSERT_TRUE(storage.remove_file(shard(1)).ok());
  EXPECT_EQ(open_error(storage).text(),
            "error[C002]: cannot open: No such file or directory\n"
            "  --> /checkpoints/step-20/shard-00001.safetensors");
}

TEST(CheckpointDamage, DirectoryOfAnotherStepIsFound) {
  MemoryStorage storage = saved_sample();
  ASSERT_TRUE(storage.rename(kDirectory, std::string(kRoot) + "/step-99").ok());
  const auto moved = Checkpoint::open(storage, std::string(kRoot) + "/step-99");
  ASSERT_FALSE(moved.ok());
  EXPECT_EQ(moved.error().cause, "is of step 20, not 99");
}

TEST(CheckpointDamage, LinksAreRefused) {
  MemoryStorage storage = saved_sample();
  ASSERT_TRUE(storage.remove_file(shard(0)).ok());
  storage.make_link(shard(0));
  EXPECT_EQ(open_error(storage).code, "C002");
  storage.make_link(std::string(kRoot) + "/step-30");
  const auto linked = Checkpoint::open(storage, std::string(kRoot) + "/step-30");
  ASSERT_FALSE(linked.ok());
  EXPECT_EQ(linked.error().cause, "not a directory");
}

TEST(CheckpointDamage, FallsBackToTheOlderOneAndSaysWhy) {
  MemoryStorage storage;
  for (const uint64_t step : {10, 20, 30}) ASSERT_TRUE(save_sample(storage, kRoot, step, {.keep = 9}).ok());
  storage.content(std::string(kRoot) + "/step-30/manifest.json")->back() = '}';
  storage.content(shard(1))->back() ^= 1;
  const auto latest = find_latest(storage, kRoot);
  ASSERT_TRUE(latest.ok());
  EXPECT_EQ(latest->id.step, 10);
  ASSERT_EQ(latest->rejected.size(), 2U);
  EXPECT_EQ(latest->rejected[0].error.code, "C003");
  EXPECT_EQ(latest->rejected[1].error.code, "C006");
  EXPECT_EQ(latest->rejected[1].error.place, shard(1) + ": tensor 'mask'");
}

}  // namespace
}  // namespace tenon::checkpoint
