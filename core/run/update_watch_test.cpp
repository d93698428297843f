#include "run/update_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tenon {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A parameter with one slot, all of it the piece that a call updates.
template <class T>
class Case {
 public:
  explicit Case(size_t count, T param = T(0.02), T grad = T(0.1))
      : params_(count, param), grads_(count, grad), moments_(count, T(0)) {
    piece_.dtype = static_cast<uint32_t>(sizeof(T) == 8 ? Dtype::f64 : Dtype::f32);
    piece_.count = count;
    piece_.param = params_.data();
    piece_.grad = grads_.data();
    piece_.slots = slots_;
    piece_.stats = stats_;
    piece_.name = "wte";
    piece_.first = 100;
    OptimizerDeclaration declaration;
    declaration.slots = {{"momentum"}};
    declaration.num_stats = 2;
    watch_.add(piece_, declaration);
  }

  template <class Rule>
  Status step(double lr, Rule&& rule, double scale = 1) {
    watch_.before_step({sizeof(tenon_step_scalars), 0, 1, lr, scale});
    rule(*this);
    return watch_.after_step();
  }
  bool is_dead() const { return watch_.must_move() && !watch_.moved(); }

  std::vector<T> params_, grads_, moments_;
  double stats_[2] = {0, 0};
  UpdateWatch watch_;

 private:
  void* slots_[1] = {moments_.data()};
  tenon_update piece_{};
};

constexpr auto kNothing = [](auto&) {};
constexpr auto kDescent = [](auto& c) {
  for (size_t i = 0; i < c.params_.size(); ++i) c.params_[i] -= c.grads_[i] / 1000;
};

template <class T>
class UpdateWatchOf : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(UpdateWatchOf, Types);

TYPED_TEST(UpdateWatchOf, sees_an_update_that_does_nothing) {
  for (const size_t count : {1, 15, 16, 17, 1000}) {
    Case<TypeParam> c(count);
    EXPECT_TRUE(c.step(1e-3, kNothing).ok());
    EXPECT_TRUE(c.is_dead()) << count;
    EXPECT_TRUE(c.step(1e-3, kDescent).ok());
    EXPECT_FALSE(c.is_dead()) << count;
  }
}

TYPED_TEST(UpdateWatchOf, takes_a_change_of_state_alone_for_one) {
  Case<TypeParam> c(1000);
  EXPECT_TRUE(c.step(1e-3, [](auto& all) { all.moments_.assign(all.moments_.size(), 1); }).ok());
  EXPECT_FALSE(c.is_dead());
}

TYPED_TEST(UpdateWatchOf, asks_for_no_change_that_would_be_rounded_away) {
  using T = TypeParam;
  const auto is_asked = [](Case<T> c, double lr, double scale = 1) {
    EXPECT_TRUE(c.step(lr, kNothing, scale).ok());
    return c.is_dead();
  };
  const T tiny = std::numeric_limits<T>::epsilon();
  EXPECT_TRUE(is_asked(Case<T>(20, 1, 1), 1e-3));
  EXPECT_FALSE(is_asked(Case<T>(20, 1, 0), 1e-3)) << "no gradient";
  EXPECT_FALSE(is_asked(Case<T>(20, 1, 1), 0)) << "no learning rate";
  EXPECT_FALSE(is_asked(Case<T>(20, 1, 1), 1e-3, 0)) << "a gradient that is clipped to nothing";
  EXPECT_FALSE(is_asked(Case<T>(20, 1, tiny), 1)) << "what is added is the last bit";
  EXPECT_FALSE(is_asked(Case<T>(20, 1, 1 / tiny), static_cast<double>(tiny))) << "of its sign alone";
  EXPECT_FALSE(is_asked(Case<T>(20, 1, static_cast<T>(kNaN)), 1e-3)) << "a gradient that is no number";
}

TYPED_TEST(UpdateWatchOf, names_what_is_no_number_any_more) {
  Case<TypeParam> c(32);
  const Status seen = c.step(1e-3, [](auto& all) { all.params_.back() = static_cast<TypeParam>(kNaN); });
  ASSERT_FALSE(seen.ok());
  EXPECT_EQ(seen.error().code, "N002");
  EXPECT_NE(seen.error().cause.find("nan of element 131 of wte"), std::string::npos) << seen.error().cause;

  Case<TypeParam> lost(32, TypeParam(0.02), static_cast<TypeParam>(kNaN));
  EXPECT_TRUE(lost.step(1e-3, kDescent).ok()) << "it made of no number what it had to";
}

TYPED_TEST(UpdateWatchOf, sees_statistics_that_are_left_or_added_to) {
  Case<TypeParam> c(32);
  const auto see = [&](auto&& rule) {
    c.watch_.before_stats();
    rule(c.stats_);
    return c.watch_.after_stats();
  };
  EXPECT_TRUE(see([](double* stats) { stats[0] = 0, stats[1] = -1; }).ok());
  EXPECT_TRUE(see([](double* stats) { stats[0] = stats[1] = std::sqrt(-1.0); }).ok()) << "that is the run's";
  EXPECT_FALSE(see([](double* stats) { stats[0] = 1; }).ok());
  const Status added = see([](double* stats) { stats[0] = 1, stats[1] += 1; });
  ASSERT_FALSE(added.ok());
  EXPECT_EQ(added.error().code, "N002");
  EXPECT_NE(added.error().cause.find("a statistic of wte"), std::string::npos) << added.error().cause;
}

}  // namespace
}  // namespace tenon
