// Memory on a model of more than 100 million parameters: what was planned is what is used, and it stays so.
#include <malloc.h>

#include "host/resolve.h"
#include "recipes.hpp"
#include "run/session.h"
#include "workplace.hpp"

namespace tenon::test {
namespace {

constexpr int64_t kMiB = 1 << 20;

int64_t resident() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, pages = 0;
  statm >> size >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// Bytes that the heap has given out, large blocks included.
int64_t heap() {
  const auto info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

int64_t num_parameters(const Session& session) {
  int64_t sum = 0;
  for (const TensorInfo& param : session.tensors().params()) sum += param.operand.elements();
  return sum;
}

// A session of one rank over the words of a small text.
class OneRank {
 public:
  explicit OneRank(Json document) {
    RegistryConfig config;
    config.directories = {TENON_PLUGIN_DIR};
    config.default_directories = false;
    registry_ = std::make_unique<PluginRegistry>(config);
    document["data"]["options"]["files"] = {place_.at("text.txt")};
    recipe_ = read_recipe(document).value();
    plugins_ = load_plugins(*registry_, recipe_).value();
    SessionOptions options;
    options.threads = 2;
    session_ = Session::open(recipe_, plugins_, options).value();
  }
  Session& operator*() { return *session_; }
  Session* operator->() { return session_.get(); }
  const Recipe& recipe() const { return recipe_; }
  const PluginSet& plugins() const { return plugins_; }
  double step() {
    const auto result = session_->step();
    EXPECT_TRUE(result.ok()) << result.error().text();
    return result.ok() ? result->loss : NAN;
  }

 private:
  Workplace place_;
  std::unique_ptr<PluginRegistry> registry_;
  Recipe recipe_;
  PluginSet plugins_;
  std::unique_ptr<Session> session_;
};

Json small() {
  Json document = tiny_recipe(gpt2_model({}), "", 12);
  document["kernels"]["plugin"] = "kernels/cpu";
  return document;
}

// GPT-2 124M; few tokens, so that the test is quick.
Json large() {
  TinyModel model;
  model.layers = 12, model.width = 768, model.ffn = 3072, model.groups = 12, model.head = 64,
  model.vocab = 50304, model.context = 64;
  Json document = tiny_recipe(gpt2_model(model), "", model.context);
  document["kernels"]["plugin"] = "kernels/cpu";
  document["batch"] = 1;
  return document;
}

// The arena's highest written byte: the plan's end, but for the gap behind the last tensor.
void expect_arena_as_planned(OneRank& rank) {
  Executor& executor = *rank->train_executor();
  executor.poison_arena();
  rank.step();
  const uint64_t planned = rank->train_program().space_bytes[static_cast<size_t>(Space::arena)];
  const uint64_t used = executor.arena_high_water();
  std::printf("arena: planned %llu, used %llu bytes\n", static_cast<unsigned long long>(planned),
              static_cast<unsigned long long>(used));
  EXPECT_LE(used, planned);
  EXPECT_LT(planned - used, kAlignment);
}

// What the report says is what the programs need and the plugins declare.
void expect_total_is_the_sum(OneRank& rank) {
  const auto options = compile_options(rank.recipe(), rank.plugins(), rank->train_program().mesh).value();
  uint64_t sum = 0, declared = 0;
  std::array<uint64_t, kNumSpaces> spaces{};
  for (ProgramKind kind : {ProgramKind::train, ProgramKind::eval, ProgramKind::logits}) {
    const Program program = compile(rank.recipe(), kind, options).value().programs[0];
    for (size_t i = 0; i < kNumSpaces; ++i) spaces[i] = std::max(spaces[i], program.space_bytes[i]);
    declared = std::max(declared, program.kernel_private_bytes);
  }
  for (uint64_t bytes : spaces) sum += bytes;
  EXPECT_EQ(rank->memory().total(), sum + declared);
  const auto parameters = static_cast<uint64_t>(num_parameters(*rank));
  EXPECT_GE(rank->memory().of(Space::param), 4 * parameters);
  EXPECT_GE(rank->memory().of(Space::state), 2 * rank->memory().of(Space::param)) << "two moments";
  EXPECT_LT(rank->memory().of(Space::param), 4 * parameters + 64 * rank->tensors().params().size())
      << "no more than alignment";
}

TEST(Memory, of_a_small_model_is_as_planned) {
  OneRank rank(small());
  expect_arena_as_planned(rank);
  expect_total_is_the_sum(rank);
}

TEST(Memory, what_the_arena_held_before_a_step_does_not_matter) {
  OneRank plain(small()), poisoned(small());
  for (int step = 0; step < 4; ++step) {
    poisoned->train_executor()->poison_arena();
    EXPECT_EQ(poisoned.step(), plain.step()) << "step " << step + 1;
  }
}

TEST(Memory, of_124_million_parameters_is_as_planned_and_does_not_grow) {
  const int64_t before = resident();
  OneRank rank(large());
  ASSERT_GT(num_parameters(*rank), 100'000'000);
  expect_arena_as_planned(rank);
  expect_total_is_the_sum(rank);
  for (int step = 2; step <= 3; ++step) rank.step();
  const int64_t resident_at_3 = resident(), heap_at_3 = heap();
  for (int step = 4; step <= 8; ++step) rank.step();
  const int64_t growth = resident() - resident_at_3;
  EXPECT_EQ(heap(), heap_at_3) << "a step keeps memory";
  EXPECT_LT(growth, kMiB) << "pages of stacks and of free heap may still be touched for the first time";
  const auto planned = static_cast<int64_t>(rank->memory().total());
  const int64_t rest = resident() - planned;
  std::printf(
      "%lld parameters: resident %.1f MiB = planned %.1f MiB + rest %.1f MiB (%.1f MiB before the session); "
      "growth from step 3 to 8: %lld bytes\n",
      static_cast<long long>(num_parameters(*rank)), static_cast<double>(resident()) / kMiB,
      static_cast<double>(planned) / kMiB, static_cast<double>(rest) / kMiB,
      static_cast<double>(before) / kMiB, static_cast<long long>(growth));
  EXPECT_GT(rest, 0) << "some of the planned memory was never touched";
  EXPECT_LT(rest, 64 * kMiB) << "memory that no plan knows of";
}

}  // namespace
}  // namespace tenon::test
