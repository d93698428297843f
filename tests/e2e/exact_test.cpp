// Exact mode through the command: the number of ranks, and what joins them, does not change a bit.
#include "workplace.hpp"

namespace tenon::test {
namespace {

struct World {
  const char* comm;
  int ranks;
};
constexpr World kWorlds[] = {
    {"comm/ucx", 2}, {"comm/ucx", 4}, {"comm/local", 2}, {"comm/local", 4}, {"comm/local", 8}};

std::string name_of(const World& world) {
  return std::string(world.comm).substr(5) + std::to_string(world.ranks);
}

// The same recipe on one rank and in all worlds: every number printed and every byte saved.
void expect_same_bits(const std::vector<std::string>& parameters, bool padded) {
  const Workplace place;
  std::vector<std::string> given{"mode=exact", "steps=5", "save=5"};
  given.insert(given.end(), parameters.begin(), parameters.end());
  const CommandRecord one = train(place, "one", 1, given);
  ASSERT_EQ(one.steps.size(), 5u);
  const auto is_padded = [](const Step& step) { return step.tokens < 8 * 16; };
  EXPECT_EQ(std::any_of(one.steps.begin(), one.steps.end(), is_padded), padded)
      << "the text does not test padding";
  for (const World& world : kWorlds) {
    SCOPED_TRACE(name_of(world));
    std::vector<std::string> there = given;
    there.push_back(std::string("comm=") + world.comm);
    const CommandRecord many = train(place, name_of(world), world.ranks, there);
    EXPECT_EQ(many.steps, one.steps);
    expect_same(many.saved, one.saved, name_of(world));
  }
}

TEST(ExactMode, adamw_with_clipping_and_a_padded_batch_has_the_same_bits_on_any_number_of_ranks) {
  expect_same_bits({"optim=adamw", "clip=0.5", "file=short.txt", "valid=0"}, true);
}

TEST(ExactMode, sgd_with_clipping_and_a_padded_batch_has_the_same_bits_on_any_number_of_ranks) {
  expect_same_bits({"optim=sgd", "lr=0.1", "clip=0.5", "file=short.txt", "valid=0"}, true);
}

TEST(ExactMode, without_clipping_the_bits_are_the_same_too) {
  expect_same_bits({"optim=sgd", "lr=0.1", "clip=0"}, false);
}

TEST(ExactMode, clipping_changes_the_result) {
  const Workplace place;
  const CommandRecord free =
      train(place, "free", 1, {"mode=exact", "optim=sgd", "lr=0.1", "clip=0", "save=6"});
  const CommandRecord clipped =
      train(place, "clipped", 1, {"mode=exact", "optim=sgd", "lr=0.1", "clip=0.5", "save=6"});
  EXPECT_EQ(free.steps[0], clipped.steps[0]);
  EXPECT_GT(clipped.steps[0].norm, 0.5) << "nothing to clip";
  EXPECT_NE(free.steps[1].loss, clipped.steps[1].loss);
}

TEST(ExactMode, the_evaluation_of_a_padded_batch_has_the_same_bits_on_any_number_of_ranks) {
  const Workplace place;
  const std::vector<std::string> given{"mode=exact", "steps=2",        "eval=1",
                                       "save=2",     "file=short.txt", "valid=0.3"};
  const auto one = events(parse_lines(train(place, "one", 1, given).result.out), "eval");
  ASSERT_EQ(one.size(), 2u);
  EXPECT_EQ(one[0].at("tokens"), 5 * 16 + 4) << "six samples, the last with four targets";
  for (const World& world : kWorlds) {
    std::vector<std::string> there = given;
    there.push_back(std::string("comm=") + world.comm);
    const auto many =
        events(parse_lines(train(place, name_of(world), world.ranks, there).result.out), "eval");
    EXPECT_EQ(many, one) << name_of(world);
  }
}

// Fast mode sums in the backend's order: close, not equal. Rounding grows with the steps.
void expect_close(const std::vector<std::string>& parameters, double margin) {
  const Workplace place;
  std::vector<std::string> given{"mode=fast", "steps=20", "save=20"};
  given.insert(given.end(), parameters.begin(), parameters.end());
  const CommandRecord one = train(place, "one", 1, given);
  ASSERT_EQ(one.steps.size(), 20u);
  double worst = 0;
  for (const World& world : kWorlds) {
    std::vector<std::string> there = given;
    there.push_back(std::string("comm=") + world.comm);
    const CommandRecord many = train(place, name_of(world), world.ranks, there);
    ASSERT_EQ(many.steps.size(), 20u) << name_of(world);
    for (size_t i = 0; i < 20; ++i) {
      const double off = std::abs(many.steps[i].loss - one.steps[i].loss) / one.steps[i].loss;
      EXPECT_LE(off, margin) << name_of(world) << ", step " << i + 1;
      worst = std::max(worst, off);
    }
  }
  std::printf("largest relative difference of a loss: %.2g\n", worst);
  EXPECT_LT(one.steps[19].loss, 0.95 * one.steps[0].loss) << "the model learns nothing";
}

TEST(FastMode, sgd_is_within_a_hundred_thousandth_on_any_number_of_ranks) {
  expect_close({"optim=sgd", "lr=0.1"}, 1e-5);
}

TEST(FastMode, adamw_is_within_a_hundred_thousandth_on_any_number_of_ranks) {
  expect_close({"optim=adamw", "lr=0.01"}, 1e-5);
}

}  // namespace
}  // namespace tenon::test
