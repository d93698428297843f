// What one mesh saves, any other loads: 30 seeded pairs of the grid's cases that train the same model.
#include <filesystem>

#include "close.hpp"
#include "further_cases.h"
#include "run/checkpoints.h"
#include "text_file.hpp"

namespace tenon::test {
namespace {

constexpr size_t kPairs = 30;
constexpr int64_t kSaved = 2;  // steps

struct Pair {
  Case from, to;
};
void PrintTo(const Pair& pair, std::ostream* out) { *out << pair.from.name() << " -> " << pair.to.name(); }

bool same_mesh(const Case& a, const Case& b) {
  const std::string text;
  const Json x = together(a, text), y = together(b, text);
  return x["mesh"] == y["mesh"] && x["strategies"] == y["strategies"];
}

// Each case saves at most once, and is loaded by the next one of the same model on another mesh.
std::vector<Pair> pairs() {
  std::vector<Pair> out;
  std::map<std::string, std::optional<Case>> waiting;
  for (const Case& c : shuffled()) {
    std::optional<Case>& other = waiting[key_alone(c)];
    if (!other) {
      other = c;
    } else if (!same_mesh(*other, c)) {
      out.push_back({*other, c});
      other.reset();
    }
    if (out.size() == kPairs) break;
  }
  return out;
}

// Further things, to and from the same model without tensor and pipeline.
std::vector<Pair> further_pairs() {
  constexpr size_t kEach = 10;  // one of so many
  std::vector<Pair> out;
  for (size_t i = 0; i < further().size(); i += kEach) {
    Case with = further()[i].what, without = with;
    without.tensor = {};
    without.pipeline = {};
    without.experts.clear();
    out.push_back(i / kEach % 2 == 0 ? Pair{with, without} : Pair{without, with});
  }
  return out;
}

class AcrossMeshes : public testing::TestWithParam<Pair> {
 protected:
  AcrossMeshes() {
    directory_ = testing::TempDir() + "tenon_meshes_XXXXXX";
    if (mkdtemp(directory_.data()) == nullptr) std::abort();
  }
  ~AcrossMeshes() override { std::filesystem::remove_all(directory_); }

  // Trains to `steps`, from the checkpoint if there is one.
  static Result<RunRecord> run(const Case& c, RunOptions options) {
    options.ranks = c.world();
    return run_virtual(together(c, text_file(c)), options);
  }
  Status save(Session& session) {
    checkpoint::PosixStorage storage;
    TENON_TRY(const std::string path, Checkpoints(session).save(storage, directory_, "pair"));
    return {};
  }
  Status load(Session& session) {
    checkpoint::PosixStorage storage;
    TENON_TRY(const Loaded from, Checkpoints(session).load(storage, directory_));
    return {};
  }

  std::string directory_;
};

TEST_P(AcrossMeshes, weights_moments_and_data_go_on) {
  const auto& [from, to] = GetParam();
  const auto saver = [this](Session& s) { return save(s); };
  const auto loader = [this](Session& s) { return load(s); };
  const auto saved = run(from, {.steps = kSaved, .after = saver});
  ASSERT_TRUE(saved.ok()) << saved.error().text();
  const auto loaded = run(to, {.steps = kSaved, .before = loader});
  ASSERT_TRUE(loaded.ok()) << loaded.error().text();
  EXPECT_TRUE(loaded->steps.empty());
  EXPECT_EQ(loaded->disagreements, std::vector<std::string>{});
  ASSERT_EQ(loaded->tensors.size(), saved->tensors.size());
  for (const auto& [name, bytes] : saved->tensors) {
    EXPECT_TRUE(loaded->tensors.contains(name) && loaded->tensors.at(name) == bytes) << name;
  }
  const auto next = run(to, {.steps = kSaved + 1, .before = loader});
  ASSERT_TRUE(next.ok()) << next.error().text();
  auto whole = run_virtual(alone(from, text_file(from)), {.steps = kSaved + 1});
  ASSERT_TRUE(whole.ok()) << whole.error().text();
  whole->steps.erase(whole->steps.begin(), whole->steps.end() - 1);
  EXPECT_EQ(next->steps[0].result.step, kSaved + 1);
  expect_close(*whole, *next, Dtype::f64, 1e-10);
}

INSTANTIATE_TEST_SUITE_P(pairs, AcrossMeshes, testing::ValuesIn(pairs()),
                         [](const auto& info) { return "p" + std::to_string(info.index); });

INSTANTIATE_TEST_SUITE_P(further, AcrossMeshes, testing::ValuesIn(further_pairs()),
                         [](const auto& info) { return "p" + std::to_string(info.index); });

TEST(PairsOfMeshes, are_as_many_as_promised) { EXPECT_EQ(pairs().size(), kPairs); }

}  // namespace
}  // namespace tenon::test
