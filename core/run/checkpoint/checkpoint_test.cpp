// Saving and loading on a real disk: round trips, other cuts, rules of a root, messages.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/json.h"
#include "run/checkpoint/load.h"
#include "run/checkpoint/save.h"

namespace tenon::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string random_bytes(int64_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(static_cast<size_t>(size), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

struct Whole {
  std::string name;
  uint32_t dtype;
  Shape shape;
  std::string bytes;

  Slice all() const { return {whole_box(shape), {0, *num_elements(shape)}}; }
  std::string cut(const Slice& slice) const {
    std::string out(static_cast<size_t>(slice.flat.size * dtype_bytes(dtype)), '\0');
    copy_overlap(all(), reinterpret_cast<const std::byte*>(bytes.data()), slice,
                 reinterpret_cast<std::byte*>(out.data()), dtype_bytes(dtype));
    return out;
  }
};

Whole make_whole(const std::string& name, uint32_t dtype, const Shape& shape, uint64_t seed) {
  return {name, dtype, shape, random_bytes(*num_elements(shape) * dtype_bytes(dtype), seed)};
}

// Parts of one rank with the bytes they point to.
class Rank {
 public:
  void add(const Whole& whole, const Box& box, std::optional<Range> flat = std::nullopt) {
    auto bytes = std::make_unique<std::string>(whole.cut({box, flat.value_or(Range{0, num_elements(box)})}));
    parts_.push_back({whole.name, whole.dtype, whole.shape, box, flat, bytes->data(), bytes->size()});
    bytes_.push_back(std::move(bytes));
  }
  void add(const Whole& whole) { add(whole, whole_box(whole.shape)); }
  std::vector<TensorPart>& parts() { return parts_; }

 private:
  std::vector<TensorPart> parts_;
  std::vector<std::unique_ptr<std::string>> bytes_;
};

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tenon-checkpoint-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    root_ = folder_ + "/deep/checkpoints";
  }
  void TearDown() override { fs::remove_all(folder_); }

  Result<std::string> save(std::vector<Rank>& ranks, int64_t step = 1, const CommitOptions& options = {},
                           const std::string& meta = "{}") {
    const SaveId id{run_, step};
    TENON_TRY(const std::string tmp, begin(disk_, root_, id, "nonce"));
    std::vector<std::string> reports;
    for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
      TENON_TRY(std::string report, write_shard(disk_, tmp, id, rank, ranks[rank].parts()));
      reports.push_back(std::move(report));
    }
    return commit(disk_, root_, tmp, id, reports, meta, options);
  }
  Result<std::string> save_one(int64_t step, const CommitOptions& options = {}) {
    std::vector<Rank> ranks(1);
    ranks[0].add(make_whole("w", TENON_F32, {4}, static_cast<uint64_t>(step)));
    return save(ranks, step, options);
  }
  std::vector<std::string> entries() {
    auto names = disk_.list(root_);
    return names.ok() ? *names : std::vector<std::string>{names.error().text()};
  }
  Error save_error(std::vector<Rank>& ranks) {
    const auto saved = save(ranks);
    return saved.ok() ? Error{"none", "", "", ""} : saved.error();
  }

  PosixStorage disk_;
  std::string folder_;
  std::string root_;
  std::string run_ = "run";
};

void expect_whole(const Checkpoint& checkpoint, const Whole& whole) {
  std::string bytes(whole.bytes.size(), '\0');
  const Status read = checkpoint.read(whole.name, bytes.data(), bytes.size());
  ASSERT_TRUE(read.ok()) << read.error().text();
  EXPECT_TRUE(bytes == whole.bytes) << whole.name;
}

TEST_F(CheckpointTest, EveryTypeComesBackBitForBit) {
  std::vector<Whole> tensors;
  std::vector<Rank> ranks(1);
  for (uint32_t dtype = TENON_F64; dtype <= TENON_U8; ++dtype) {
    tensors.push_back(make_whole(std::string("t.") + dtype_name(dtype), dtype, {3, 5}, dtype));
  }
  tensors.push_back(make_whole("scalar", TENON_I64, {}, 9));
  tensors.push_back(make_whole("empty", TENON_F32, {2, 0, 3}, 9));
  for (const Whole& tensor : tensors) ranks[0].add(tensor);
  const auto saved = save(ranks, 7, {}, R"({"mesh":[2,1],"lr":0.1})");
  ASSERT_TRUE(saved.ok()) << saved.error().text();
  EXPECT_EQ(*saved, root_ + "/step-7");
  const auto checkpoint = Checkpoint::open(disk_, *saved);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().text();
  for (const Whole& tensor : tensors) expect_whole(*checkpoint, tensor);
  EXPECT_TRUE(checkpoint->verify_all().ok());
  EXPECT_EQ(checkpoint->manifest().meta, R"({"lr":0.1,"mesh":[2,1]})");
  EXPECT_EQ(checkpoint->manifest().tensors.size(), tensors.size());
}

TEST_F(CheckpointTest, UnevenAndEmptyFlatRangesOfManyRanksAreJoined) {
  const Whole whole = make_whole("w/optimizer/adamw.exp_avg", TENON_F32, {7, 11}, 1);
  const std::vector<int64_t> cuts = {0, 1, 1, 30, 30, 76, 77};
  std::vector<Rank> ranks(cuts.size() - 1);
  for (size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].add(whole, whole_box(whole.shape), Range{cuts[i], cuts[i + 1] - cuts[i]});
  }
  const auto saved = save(ranks);
  ASSERT_TRUE(saved.ok()) << saved.error().text();
  const auto checkpoint = Checkpoint::open(disk_, *saved);
  expect_whole(*checkpoint, whole);
  EXPECT_EQ(checkpoint->manifest().shards.size(), 6U);
  EXPECT_EQ(checkpoint->manifest().tensors.at(whole.name).parts.size(), 4U);
}

TEST_F(CheckpointTest, AnyBoxIsReadFromAnyParts) {
  // 2 x 2 boxes of 3 dims, each cut into uneven flat ranges over 8 ranks.
  const Whole whole = make_whole("w", TENON_BF16, {6, 5, 7}, 2);
  std::vector<Rank> ranks(8);
  const std::vector<Range> rows = {{0, 2}, {2, 4}}, columns = {{0, 4}, {4, 3}};
  for (size_t i = 0; i < 4; ++i) {
    const Box box = {rows[i / 2], {0, 5}, columns[i % 2]};
    const int64_t elements = num_elements(box), middle = elements / 3 + 1;
    ranks[i].add(whole, box, Range{0, middle});
    ranks[i + 4].add(whole, box, Range{middle, elements - middle});
  }
  const auto saved = save(ranks);
  ASSERT_TRUE(saved.ok()) << saved.error().text();
  const auto checkpoint = Checkpoint::open(disk_, *saved);
  std::mt19937_64 random(3);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int trial = 0; trial < 1000; ++trial) {
    Slice slice;
    for (const int64_t size : whole.shape) {
      const int64_t start = below(size);
      slice.box.push_back({start, 1 + below(size - start)});
    }
    const int64_t elements = num_elements(slice.box), start = below(elements + 1);
    slice.flat = {start, below(elements - start + 1)};
    std::string bytes(static_cast<size_t>(slice.flat.size * 2), '\0');
    const Status read = checkpoint->read("w", slice, bytes.data(), bytes.size());
    ASSERT_TRUE(read.ok()) << read.error().text();
    ASSERT_TRUE(bytes == whole.cut(slice)) << to_text(slice.box);
  }
}

TEST_F(CheckpointTest, TensorsOfManyChunksComeBackWholeAndInPieces) {
  const Whole whole = make_whole("large", TENON_F32, {1031, 2500}, 4);  // 9.8 MiB
  std::vector<Rank> ranks(2);
  ranks[0].add(whole, whole_box(whole.shape), Range{0, 2000001});
  ranks[1].add(whole, whole_box(whole.shape), Range{2000001, 577499});
  const auto saved = save(ranks);
  ASSERT_TRUE(saved.ok()) << saved.error().text();
  const auto checkpoint = Checkpoint::open(disk_, *saved);
  expect_whole(*checkpoint, whole);
  const Slice columns{{{100, 900}, {1000, 700}}, {17, 600000}};
  const std::string expected = whole.cut(columns);
  std::string bytes(expected.size(), '\0');
  ASSERT_TRUE(checkpoint->read("large", columns, bytes.data(), bytes.size()).ok());
  EXPECT_TRUE(bytes == expected);
}

// What a reader of plain safetensors checks.
TEST_F(CheckpointTest, ShardsAreSafetensorsFiles) {
  const Whole first = make_whole("b", TENON_F64, {3}, 1), second = make_whole("a", TENON_U8, {5}, 2);
  std::vector<Rank> ranks(1);
  ranks[0].add(second);
  ranks[0].add(first);
  ranks[0].add(make_whole("c", TENON_F32, {4}, 3), {{0, 4}}, Range{0, 3});
  ranks[0].add(make_whole("c", TENON_F32, {4}, 3), {{0, 4}}, Range{3, 1});
  const auto saved = save(ranks);
  ASSERT_TRUE(saved.ok()) << saved.error().text();
  std::ifstream stream(*saved + "/shard-00000.safetensors", std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(stream)), {});
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  EXPECT_EQ((8 + length) % 4096, 0U);
  const std::string text = file.substr(8, length);
  EXPECT_EQ(text[0], '{');
  const Json header = Json::parse(text);
  EXPECT_EQ(header["__metadata__"]["format"], "pt");
  for (const auto& [key, value] : header["__metadata__"].items()) EXPECT_TRUE(value.is_string()) << key;
  EXPECT_EQ(header["b"], Json::parse(R"({"dtype":"F64","shape":[3],"data_offsets":[0,24]})"));
  EXPECT_EQ(header["c[0:4]{0:3}"], Json::parse(R"({"dtype":"F32","shape":[3],"data_offsets":[24,36]})"));
  EXPECT_EQ(header["c[0:4]{3:4}"], Json::parse(R"({"dtype":"F32","shape":[1],"data_offsets":[36,40]})"));
  EXPECT_EQ(header["a"], Json::parse(R"({"dtype":"U8","shape":[5],"data_offsets":[40,45]})"));
  EXPECT_EQ(header.size(), 5U);
  EXPECT_EQ(file.size(), 8 + length + 45);
  EXPECT_EQ(file.substr(8 + length, 24), first.bytes);
  EXPECT_EQ(file.substr(8 + length + 40, 5), second.bytes);
}

TEST_F(CheckpointTest, KeepsAsManyAsAskedFor) {
  for (int64_t step = 1; step <= 5; ++step) ASSERT_TRUE(save_one(step, {.keep = 2}).ok());
  EXPECT_EQ(entries(), (std::vector<std::string>{"step-4", "step-5"}));
  // A damaged one does not count, and goes when enough newer ones are sound.
  fs::resize_file(root_ + "/step-5/manifest.json", 10);
  ASSERT_TRUE(save_one(6, {.keep = 2}).ok());
  EXPECT_EQ(entries(), (std::vector<std::string>{"step-4", "step-5", "step-6"}));
  ASSERT_TRUE(save_one(7, {.keep = 2}).ok());
  EXPECT_EQ(entries(), (std::vector<std::string>{"step-6", "step-7"}));
}

TEST_F(CheckpointTest, RootOfAnotherRunIsRefused) {
  ASSERT_TRUE(save_one(5).ok());
  run_ = "other";
  const auto saved = save_one(6);
  ASSERT_FALSE(saved.ok());
  EXPECT_EQ(saved.error().text(), "error[C010]: holds a checkpoint of run 'run', not of 'other'\n  --> " +
                                      root_ + "/step-5\n  fix: give each run a folder of its own");
}

TEST_F(CheckpointTest, NewerStepsAreRefusedOrRemovedAsAsked) {
  ASSERT_TRUE(save_one(5, {.keep = 9}).ok());
  ASSERT_TRUE(save_one(8, {.keep = 9}).ok());
  const auto refused = save_one(6, {.keep = 9});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "C010");
  EXPECT_EQ(refused.error().cause, "is newer than step 6, which is to be saved");
  ASSERT_TRUE(save_one(6, {.keep = 9, .newer = NewerSteps::kRemove}).ok());
  EXPECT_EQ(entries(), (std::vector<std::string>{"step-5", "step-6"}));
}

TEST_F(CheckpointTest, BeginRemovesDebrisButFollowsNoLinks) {
  fs::create_directories(root_ + "/.tmp-3-dead/deeper");
  fs::create_directories(folder_ + "/precious");
  std::ofstream(folder_ + "/precious/file") << "x";
  fs::create_directory_symlink(folder_ + "/precious", root_ + "/.tmp-link");
  fs::create_directory_symlink(folder_ + "/precious", root_ + "/.tmp-3-dead/link");
  ASSERT_TRUE(save_one(1).ok());
  EXPECT_EQ(entries(), std::vector<std::string>{"step-1"});
  EXPECT_TRUE(fs::exists(folder_ + "/precious/file"));
}

TEST_F(CheckpointTest, LinksAndPipesInPlaceOfFilesAreRefused) {
  const auto saved = save_one(1);
  const std::string shard = *saved + "/shard-00000.safetensors", away = folder_ + "/away";
  fs::rename(shard, away);
  fs::create_symlink(away, shard);
  const auto linked = Checkpoint::open(disk_, *saved);
  ASSERT_FALSE(linked.ok());
  EXPECT_EQ(linked.error().code, "C002");
  EXPECT_EQ(linked.error().place, shard);
  fs::remove(shard);
  ASSERT_EQ(::system(("mkfifo " + shard).c_str()), 0);
  const auto pipe = Checkpoint::open(disk_, *saved);
  ASSERT_FALSE(pipe.ok());
  EXPECT_EQ(pipe.error().cause, "cannot open: not a regular file");
}

TEST_F(CheckpointTest, ShardsAreNeverWrittenThroughLinks) {
  const SaveId id{"run", 1};
  const auto tmp = begin(disk_, root_, id, "n");
  std::ofstream(folder_ + "/victim") << "x";
  fs::create_symlink(folder_ + "/victim", *tmp + "/shard-00000.safetensors");
  const auto report = write_shard(disk_, *tmp, id, 0, {});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().cause, "cannot create: File exists");
  EXPECT_EQ(fs::file_size(folder_ + "/victim"), 1U);
}

TEST_F(CheckpointTest, ReportsThatDoNotFitTogetherAreRefused) {
  const SaveId id{"run", 2}, earlier{"run", 1};
  const Whole whole = make_whole("w", TENON_F32, {4}, 1);
  Rank top, bottom;
  top.add(whole, {{0, 2}});
  bottom.add(whole, {{2, 2}});
  const auto tmp = begin(disk_, root_, id, "n");
  const auto one = write_shard(disk_, *tmp, id, 0, top.parts());
  const auto two = write_shard(disk_, *tmp, id, 1, bottom.parts());
  ASSERT_TRUE(one.ok() && two.ok());
  const auto error = [&](const std::vector<std::string>& reports) {
    const auto saved = commit(disk_, root_, *tmp, id, reports, "{}", {});
    return saved.ok() ? Error{"none", "", "", ""} : saved.error();
  };
  EXPECT_EQ(error({*one}).code, "C008");
  EXPECT_EQ(error({*one}).cause, "2 of 4 elements are saved");
  EXPECT_EQ(error({*two}).cause, "there are 1 reports: a shard is missing");
  EXPECT_EQ(error({*one, *one}).cause, "came twice");
  EXPECT_EQ(error({*one, "{}"}).code, "C009");
  EXPECT_EQ(error({*one, "garbage"}).code, "C009");
  const std::string stale_tmp = root_ + "/.tmp-1-m";
  fs::create_directory(stale_tmp);
  const auto stale = write_shard(disk_, stale_tmp, earlier, 1, bottom.parts());
  EXPECT_EQ(error({*one, *stale}).cause,
            "is of save '.tmp-1-m' of run 'run', not of '.tmp-2-n' of run 'run'");
  const std::string other_tmp = root_ + "/.tmp-2-m";
  fs::create_directory(other_tmp);
  const auto other_attempt = write_shard(disk_, other_tmp, id, 1, bottom.parts());
  EXPECT_EQ(error({*one, *other_attempt}).cause,
            "is of save '.tmp-2-m' of run 'run', not of '.tmp-2-n' of run 'run'");
  Rank other_shape;
  other_shape.add(make_whole("w", TENON_F32, {2}, 1));
  fs::remove(*tmp + "/shard-00001.safetensors");
  const auto mismatch = write_shard(disk_, *tmp, id, 1, other_shape.parts());
  EXPECT_EQ(error({*one, *mismatch}).cause, "ranks disagree on element type or shape of tensor 'w'");
  EXPECT_EQ(entries(), (std::vector<std::string>{".tmp-1-m", ".tmp-2-m", ".tmp-2-n"}));
  ASSERT_TRUE(abandon(disk_, *tmp).ok());
  EXPECT_EQ(entries(), (std::vector<std::string>{".tmp-1-m", ".tmp-2-m"}));
}

TEST_F(CheckpointTest, ShardChangedAfterItsReportIsFoundBeforeTheCommit) {
  const SaveId id{"run", 1};
  Rank rank;
  rank.add(make_whole("w", TENON_F32, {4}, 1));
  const auto tmp = begin(disk_, root_, id, "n");
  const auto report = write_shard(disk_, *tmp, id, 0, rank.parts());
  std::fstream file(*tmp + "/shard-00000.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096 + 5);
  file.put('?');
  file.close();
  const auto saved = commit(disk_, root_, *tmp, id, {*report}, "{}", {});
  ASSERT_FALSE(saved.ok());
  EXPECT_EQ(saved.error().code, "C006");
  EXPECT_EQ(entries(), std::vector<std::string>{".tmp-1-n"});
}

TEST_F(CheckpointTest, BadPartsAreRefusedByName) {
  const Whole whole = make_whole("w", TENON_F32, {2, 3}, 1);
  const auto refused = [&](const std::function<void(TensorPart&)>& change) {
    std::vector<Rank> ranks(1);
    ranks[0].add(whole);
    change(ranks[0].parts()[0]);
    const Error error = save_error(ranks);
    EXPECT_EQ(error.code, "C007") << error.text();
    return error.cause;
  };
  EXPECT_EQ(refused([](TensorPart& p) { p.bytes = 23; }), "the data has 23 bytes, the part 24");
  EXPECT_EQ(refused([](TensorPart& p) { p.data = nullptr; }), "no data");
  EXPECT_EQ(refused([](TensorPart& p) { p.dtype = 99; }), "unknown element type 99");
  EXPECT_EQ(refused([](TensorPart& p) { p.box[1].size = 4; }), "box [0:2,0:4] lies outside the tensor");
  EXPECT_EQ(refused([](TensorPart& p) { p.flat = Range{3, 4}; }), "the flat range lies outside the box");
  EXPECT_EQ(refused([](TensorPart& p) { p.name = "../w"; }),
            "tensor name '../w': looks like a path: '' '.' '..' between slashes are refused");
  EXPECT_EQ(refused([](TensorPart& p) {
              p.shape = {-1, 3};
            }),
            "not a shape: negative sizes, over 16 dims or 2^58 elements");
  std::vector<Rank> twice(1);
  twice[0].add(whole);
  twice[0].add(whole);
  EXPECT_EQ(save_error(twice).cause, "the same part is given twice");
  const SaveId id{"run", 1};
  EXPECT_EQ(begin(disk_, root_, id, "a/b").error().code, "C007");
  EXPECT_EQ(begin(disk_, root_, {"", 1}, "n").error().code, "C007");
  EXPECT_EQ(begin(disk_, root_, {"run", -1}, "n").error().code, "C007");
  EXPECT_EQ(commit(disk_, root_, root_ + "/step-1", id, {}, "{}", {}).error().code, "C007");
  EXPECT_EQ(commit(disk_, root_, root_ + "/.tmp-1-n", id, {}, "[]", {}).error().cause,
            "must be a JSON object");
  EXPECT_EQ(commit(disk_, root_, root_ + "/.tmp-1-n", id, {}, "{}", {.keep = 0}).error().cause,
            "keep = 0: must be at least 1");
}

TEST_F(CheckpointTest, ReadsOutsideTheCheckpointAreRefused) {
  const auto saved = save_one(1);
  const auto checkpoint = Checkpoint::open(disk_, *saved);
  char bytes[64];
  EXPECT_EQ(checkpoint->read("nobody", bytes, 4).error().cause, "the checkpoint has no such tensor");
  EXPECT_EQ(checkpoint->read("w", bytes, 12).error().cause, "the slice has 16 bytes, the destination 12");
  EXPECT_EQ(checkpoint->read("w", {{{2, 3}}, {0, 3}}, bytes, 12).error().code, "C012");
  EXPECT_EQ(checkpoint->read("w", {{{0, 4}}, {2, 3}}, bytes, 12).error().code, "C012");
  EXPECT_EQ(checkpoint->read("w", {{}, {0, 1}}, bytes, 4).error().code, "C012");
}

TEST_F(CheckpointTest, FindsTheNewestAndListsAll) {
  EXPECT_EQ(find_latest(disk_, root_).error().text(),
            "error[C001]: no checkpoint can be loaded\n  --> " + root_ +
                "\n  fix: check the folder, or start without resuming");
  EXPECT_TRUE(list_checkpoints(disk_, root_)->empty());
  for (const int64_t step : {9, 10, 100}) ASSERT_TRUE(save_one(step, {.keep = 9}).ok());
  for (const char* name :
       {"step-0200", "step-", "step-300x", "step--1", "best", "step-99999999999999999999"}) {
    fs::create_directory(root_ + "/" + name);
  }
  fs::create_directory(root_ + "/step-500");
  const auto latest = find_latest(disk_, root_ + "/");
  ASSERT_TRUE(latest.ok()) << latest.error().text();
  EXPECT_EQ(latest->id.step, 100);
  EXPECT_EQ(latest->directory, root_ + "/step-100");
  ASSERT_EQ(latest->rejected.size(), 1U);
  EXPECT_EQ(latest->rejected[0].directory, root_ + "/step-500");
  EXPECT_EQ(latest->rejected[0].error.cause, "cannot open: No such file or directory");
  EXPECT_EQ(find_latest(disk_, root_, Depth::kStructure, 99)->id.step, 10);
  const auto listed = list_checkpoints(disk_, root_);
  ASSERT_EQ(listed->size(), 4U);
  EXPECT_TRUE(listed->at(0).error);
  EXPECT_EQ(listed->at(1).step, 100);
  EXPECT_EQ(listed->at(1).bytes, 4096 + 16);
  EXPECT_EQ(listed->at(1).num_tensors, 1U);
}

TEST_F(CheckpointTest, CheckpointOfAnotherModelNamesTheDifferences) {
  const auto saved = save_one(3);
  const auto checkpoint = Checkpoint::open(disk_, *saved);
  EXPECT_TRUE(match(checkpoint->manifest(), {{"w", TENON_F32, {4}}}).ok());
  const Status other = match(checkpoint->manifest(), {{"w", TENON_F32, {8}}, {"b", TENON_BF16, {2, 3}}});
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().text(),
            "error[C005]: the checkpoint is of another model: 2 of its tensors differ\n"
            "    'b' is missing (the model has BF16 [2,3])\n"
            "    'w' is F32 [4], the model has F32 [8]\n"
            "  --> step 3 of run 'run'\n"
            "  fix: resume with the recipe that the checkpoint was saved with");
  const Status extra = match(checkpoint->manifest(), {});
  ASSERT_FALSE(extra.ok());
  EXPECT_NE(extra.error().cause.find("'w' F32 [4] is not in the model"), std::string::npos);
}

}  // namespace
}  // namespace tenon::checkpoint
