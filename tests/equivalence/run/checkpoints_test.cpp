// Saving with several ranks of which one cannot: all are told at once, and the next save is sound.
#include "run/checkpoints.h"

#include <filesystem>
#include <fstream>

#include "recipes.hpp"
#include "virtual_run.hpp"

namespace tenon::test {
namespace {

Json recipe() {
  const std::string file = testing::TempDir() + "tenon_checkpoints_corpus.txt";
  std::ofstream(file) << std::string(2000, 'a') + std::string(2000, 'b');
  const TinyModel tiny;
  return tiny_recipe(gpt2_model(tiny), file, tiny.context);
}

// A disk on which no shard can be made.
class FullDisk final : public checkpoint::PosixStorage {
 public:
  Result<std::unique_ptr<checkpoint::OutputFile>> create(const std::string& path) override {
    if (path.find("shard-") == std::string::npos) return PosixStorage::create(path);
    return checkpoint::storage_error("create", path, ENOSPC);
  }
};

TEST(Checkpoints, of_a_rank_that_cannot_write_are_given_up_by_all_and_the_next_one_is_sound) {
  std::string folder = testing::TempDir() + "tenon_checkpoints_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::vector<std::string> causes(2);
  RunOptions options;
  options.ranks = 2;
  options.steps = 1;
  options.after = [&](Session& session) -> Status {
    const int64_t rank = session.device().id().rank;
    Checkpoints checkpoints(session);
    checkpoint::PosixStorage sound;
    FullDisk full;
    const auto failed =
        checkpoints.save(rank == 1 ? static_cast<checkpoint::Storage&>(full) : sound, folder, "run");
    if (failed.ok()) return Error{"X000", "it saved", "", "", TENON_E_INTERNAL};
    causes[static_cast<size_t>(rank)] = failed.error().cause;
    TENON_TRY(const std::string saved, checkpoints.save(sound, folder, "run"));
    TENON_TRY(const Loaded loaded, checkpoints.load(sound, folder));
    if (loaded.directory == saved && checkpoints.attempt() == 2) return {};
    return Error{"X000", "loaded " + loaded.directory, "", "", TENON_E_INTERNAL};
  };
  const auto record = run_virtual(recipe(), options);
  EXPECT_TRUE(record.ok()) << record.error().text();
  EXPECT_EQ(causes[0], "rank 1 could not write its part of the checkpoint");
  EXPECT_NE(causes[1].find("No space left on device"), std::string::npos) << causes[1];
  std::filesystem::remove_all(folder);
}

// Samples that were held out would be trained on, and the order of all others would be another.
TEST(Checkpoints, of_a_run_that_held_out_other_samples_are_refused) {
  std::string folder = testing::TempDir() + "tenon_checkpoints_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  checkpoint::PosixStorage storage;
  const auto saved =
      run_virtual(recipe(), {.steps = 1, .after = [&](Session& session) -> Status {
                               return Checkpoints(session).save(storage, folder, "run").ok()
                                          ? Status()
                                          : Error{"X000", "it did not save", "", "", TENON_E_IO};
                             }});
  ASSERT_TRUE(saved.ok()) << saved.error().text();
  const auto resumed_with = [&](const Json& valid) {
    Json document = recipe();
    document["data"]["valid"] = valid;
    std::string said = "loaded";
    const auto load = [&](Session& session) -> Status {
      const auto loaded = Checkpoints(session).load(storage, folder);
      if (!loaded.ok()) said = loaded.error().text();
      return {};
    };
    const auto run = run_virtual(document, {.steps = 0, .before = load});
    EXPECT_TRUE(run.ok());
    return said;
  };
  EXPECT_EQ(resumed_with(0.1), "loaded");
  EXPECT_EQ(resumed_with(0.2),
            "error[C020]: data.valid: checkpoint 0.1, recipe 0.2\n  --> " + folder +
                "/step-1\n  fix: it decides which sample comes when and must not change; number of ranks and "
                "mesh may");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tenon::test
