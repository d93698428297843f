// Strategies, one by one and together, on virtual ranks against one device, in f64 with the reference
// kernels: loss, norm of the gradients and every gradient within 1e-10; and the memory that they use is what
// was planned.
#include <mutex>

#include "close.hpp"
#include "combination.hpp"
#include "virtual_run.hpp"

namespace tenon::test {
namespace {

// The highest byte of the arena that any rank of each class writes.
class HighWater {
 public:
  std::function<Status(Session&)> before() {
    return [](Session& session) -> Status {
      session.train_executor()->poison_arena();
      return {};
    };
  }
  std::function<Status(Session&)> after() {
    return [this](Session& session) -> Status {
      const uint64_t used = session.train_executor()->arena_high_water();
      const Program& program = session.train_program();
      const std::lock_guard lock(mutex_);
      auto& [most, planned] = of_class_[program.class_index];
      most = std::max(most, used);
      planned = program.space_bytes[static_cast<size_t>(Space::arena)];
      return {};
    };
  }
  // Behind the last tensor is what aligns it, and, if it is a bucket, what fills its last granule.
  void expect_as_planned() const {
    for (const auto& [index, bytes] : of_class_) {
      EXPECT_LE(bytes.first, bytes.second) << "class " << index;
      EXPECT_LT(bytes.second - bytes.first, 4 * kAlignment) << "class " << index;
    }
  }

 private:
  std::mutex mutex_;
  std::map<int64_t, std::pair<uint64_t, uint64_t>> of_class_;
};

class Strategies : public testing::TestWithParam<Combination> {};

TEST_P(Strategies, compute_what_one_device_computes) {
  const Combination& c = GetParam();
  const auto one = run_virtual(recipe_of(c, corpus_file(), true), {.steps = 2});
  ASSERT_TRUE(one.ok()) << one.error().text();
  HighWater high;
  const auto many =
      run_virtual(recipe_of(c, corpus_file(), false),
                  {.ranks = world_of(c), .steps = 2, .before = high.before(), .after = high.after()});
  ASSERT_TRUE(many.ok()) << many.error().text();
  high.expect_as_planned();
  EXPECT_EQ(many->disagreements, std::vector<std::string>{});
  expect_close(*one, *many, Dtype::f64, 1e-10);
}

const Combination kCombinations[] = {
    {"dp2", "gpt2", {{"dp", 2}}, "data"},
    {"zero1", "gpt2", {{"dp", 2}}, "data zero1"},
    {"zero2", "gpt2", {{"dp", 4}}, "data zero2", "", 2},
    {"zero3", "gpt2", {{"dp", 2}}, "data zero3", "", 2},
    {"zero3_dp4", "llama", {{"dp", 4}}, "data zero3", "", 1, 3, "sgd"},
    {"hierarchical", "gpt2", {{"dp_out", 2}, {"dp_in", 2}}, "data zero2:dp_in", "", 2},
    {"near_gathers", "gpt2", {{"dp_out", 2}, {"dp_in", 2}}, "data zero3:dp/dp_in", "", 2},
    {"near_gathers_outside", "llama", {{"dp_in", 2}, {"dp_out", 4}}, "data zero3:dp/dp_in", "", 1, 3, "sgd"},
    {"tp2", "gpt2", {{"tp", 2}}, "tensor"},
    {"tp2_untied", "gpt2 untied", {{"tp", 2}}, "tensor"},
    {"tp4_llama", "llama", {{"tp", 4}}, "tensor"},
    {"sp2", "gpt2", {{"tp", 2}}, "sequence"},
    {"sp2_llama", "llama", {{"tp", 2}}, "sequence", "", 2},
    {"dp2_tp2", "gpt2", {{"dp", 2}, {"tp", 2}}, "data sequence zero1", "", 2},
    {"cp2_all_gather", "gpt2", {{"cp", 2}}, "all_gather"},
    {"cp2_ring", "gpt2", {{"cp", 2}}, "ring"},
    {"cp4_ring", "llama", {{"cp", 4}}, "ring"},
    {"cp2_all_to_all", "llama", {{"cp", 2}}, "all_to_all"},
    {"cp2_tp2", "llama", {{"cp", 2}, {"tp", 2}}, "all_to_all sequence"},
    {"pp2_1f1b", "gpt2 untied", {{"pp", 2}}, "pipeline", "1f1b", 4},
    {"pp2_gpipe_tied", "gpt2", {{"pp", 2}}, "pipeline", "gpipe", 2},
    {"pp3_1f1b", "llama", {{"pp", 3}}, "pipeline", "1f1b", 4},
    {"pp2_interleaved", "llama", {{"pp", 2}}, "pipeline2", "interleaved", 4, 5},
    {"pp2_zb_h1", "gpt2", {{"pp", 2}}, "pipeline", "zb-h1", 4},
    {"pp2_zb_v", "gpt2", {{"pp", 2}}, "pipeline2", "zb-v", 4, 5},
    {"pp2_dualpipe_v", "gpt2", {{"pp", 2}}, "pipeline2", "dualpipe-v", 4, 5},
    {"pp2_dp2_zero3", "gpt2", {{"pp", 2}, {"dp", 2}}, "pipeline data zero3", "1f1b", 4},
    {"pp2_dp2_zero2", "llama", {{"pp", 2}, {"dp", 2}}, "pipeline data zero2", "zb-h1", 4},
    {"pp2_dp2_tp2_zero3_dualpipe_v",
     "gpt2",
     {{"pp", 2}, {"dp", 2}, {"tp", 2}},
     "pipeline2 data sequence zero3",
     "dualpipe-v",
     4,
     4},
    {"all",
     "gpt2",
     {{"pp", 2}, {"dp", 2}, {"cp", 2}, {"tp", 2}},
     "pipeline data ring sequence zero2",
     "1f1b",
     2},
};

INSTANTIATE_TEST_SUITE_P(grid, Strategies, testing::ValuesIn(kCombinations),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tenon::test
