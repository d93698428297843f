// Many members and a small model: parts of buckets are uneven, and some members have none.
#include <filesystem>
#include <mutex>

#include "close.hpp"
#include "combination.hpp"
#include "plan/emit/layout.h"
#include "run/checkpoints.h"
#include "virtual_run.hpp"

namespace tenon::test {
namespace {

constexpr int kMembers = 64;

Combination combination(int stage, int members) {
  Combination c{
      "members", "gpt2", {{"dp", members}}, stage == 0 ? "data" : "data zero" + std::to_string(stage)};
  c.microbatches = 2;
  return c;
}

Json recipe(const Combination& c, bool alone) {
  Json out = recipe_of(c, corpus_file(), alone);
  out["batch"] = 2 * kMembers;
  return out;
}

class Members : public testing::TestWithParam<int> {};

TEST_P(Members, compute_what_one_device_computes) {
  const Combination c = combination(GetParam(), kMembers);
  const auto one = run_virtual(recipe(c, true), {.steps = 2});
  ASSERT_TRUE(one.ok()) << one.error().text();
  const auto many = run_virtual(recipe(c, false), {.ranks = kMembers, .steps = 2});
  ASSERT_TRUE(many.ok()) << many.error().text();
  EXPECT_EQ(many->disagreements, std::vector<std::string>{});
  expect_close(*one, *many, Dtype::f64, 1e-10);
}

TEST_P(Members, have_buckets_that_are_no_larger_than_what_is_in_them) {
  int64_t parameters = 0;
  std::mutex mutex;
  const auto look = [&](Session& session) -> Status {
    if (session.device().id().rank != 0) return {};
    const std::lock_guard lock(mutex);
    const Program& program = session.train_program();
    for (const FlatLayout& layout : program.layouts) {
      int64_t aligned_leaves = 0;
      for (const FlatLayout::Leaf& leaf : layout.leaves) {
        parameters += leaf.count;
        const auto bytes = static_cast<uint64_t>(leaf.count) * sizeof(double);
        aligned_leaves += static_cast<int64_t>(aligned(bytes) / sizeof(double));
      }
      EXPECT_GE(layout.elements, aligned_leaves);
      EXPECT_LT(layout.elements, aligned_leaves + kElementGranule);
    }
    return {};
  };
  const auto run = run_virtual(recipe(combination(GetParam(), kMembers), false),
                               {.ranks = kMembers, .steps = 0, .before = look});
  ASSERT_TRUE(run.ok()) << run.error().text();
  EXPECT_LT(parameters, 25'000) << "a small model";
}

INSTANTIATE_TEST_SUITE_P(zero, Members, testing::Values(0, 1, 2, 3));

// Saved by 64 members, of which some hold nothing of a bucket; loaded by 64, 4 and 1.
TEST(Members, hand_their_parts_to_any_other_number_of_members) {
  std::string folder = testing::TempDir() + "tenon_members_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  checkpoint::PosixStorage storage;
  const auto save = [&](Session& session) -> Status {
    TENON_TRY(const std::string directory, Checkpoints(session).save(storage, folder, "run"));
    static_cast<void>(directory);
    return {};
  };
  const auto load = [&](Session& session) -> Status {
    TENON_TRY(const Loaded loaded, Checkpoints(session).load(storage, folder));
    static_cast<void>(loaded);
    return {};
  };
  const auto saved =
      run_virtual(recipe(combination(3, kMembers), false), {.ranks = kMembers, .steps = 2, .after = save});
  ASSERT_TRUE(saved.ok()) << saved.error().text();
  for (const auto& [stage, members] : {std::pair{3, kMembers}, {2, 4}, {0, 1}, {3, 32}}) {
    SCOPED_TRACE(members);
    const auto loaded = run_virtual(recipe(combination(stage, members), false),
                                    {.ranks = members, .steps = 0, .before = load});
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    EXPECT_EQ(loaded->tensors, saved->tensors);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tenon::test
