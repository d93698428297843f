// LAMB against a scalar reference written from the paper, in double; its sums over a parameter, however that
// is cut.
#include <gtest/gtest.h>

#include <cmath>

#include "optimizer_case.hpp"
#include "tenon_sdk/multi_tensor.hpp"

namespace tenon::optimizer {
namespace {

using test::LoadedPlugin;
using test::message_of;
using test::MockHost;
using test::OptimizerCase;
using test::OptimizerRun;
using test::OptionValues;

constexpr int kSteps = 10;
constexpr double kEps = 1e-6, kBeta1 = 0.9, kBeta2 = 0.999;

double learning_rate(int step) { return 0.002 * step; }

template <class T>
class Lamb : public testing::Test {
 protected:
  MockHost host_;
  LoadedPlugin plugin_{test::plugin_file("optimizer", "lamb"), host_};
  OptionValues options_{plugin_.plugin()};
};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(Lamb, Floats);
using LambPlugin = Lamb<float>;

// All of the parameter after kSteps steps.
template <class T>
std::vector<double> reference(const OptimizerCase<T>& start, double grad_scale, double weight_decay) {
  const size_t n = start.param.size();
  std::vector<double> p(start.param.begin(), start.param.end()), m(n), v(n), r(n);
  for (int t = 1; t <= kSteps; ++t) {
    double params = 0, directions = 0;
    for (size_t i = 0; i < n; ++i) {
      const double g = grad_scale * start.grads[t - 1][i];
      m[i] = kBeta1 * m[i] + (1 - kBeta1) * g;
      v[i] = kBeta2 * v[i] + (1 - kBeta2) * g * g;
      const double first = m[i] / (1 - std::pow(kBeta1, t)), second = v[i] / (1 - std::pow(kBeta2, t));
      r[i] = first / (std::sqrt(second) + kEps) + weight_decay * p[i];
      params += p[i] * p[i];
      directions += r[i] * r[i];
    }
    const double ratio = params > 0 && directions > 0 ? std::sqrt(params / directions) : 1.0;
    for (size_t i = 0; i < n; ++i) p[i] -= learning_rate(t) * ratio * r[i];
  }
  return p;
}

TYPED_TEST(Lamb, ten_steps_agree_with_the_double_reference_for_every_size) {
  const double tolerance = sizeof(TypeParam) == 4 ? 2e-5 : 4e-14;
  for (const double decay : {0.0, 0.1}) {
    this->options_.set("weight_decay", decay);
    const OptimizerRun run(this->plugin_, this->options_);
    for (const size_t count : {0, 1, 2, 3, 7, 15, 16, 17, 33, 1001, 40001}) {
      OptimizerCase<TypeParam> c(count, 2, kSteps);
      const std::vector<double> wanted = reference(c, 0.37, decay);
      for (int t = 1; t <= kSteps; ++t) run.step(c, t, learning_rate(t), 0.37);
      for (size_t i = 0; i < count; ++i)
        ASSERT_NEAR(c.param[i], wanted[i], tolerance) << i << " of " << count;
    }
  }
}

TYPED_TEST(Lamb, a_parameter_of_zeros_moves_as_by_Adam) {
  const OptimizerRun run(this->plugin_, this->options_);
  OptimizerCase<TypeParam> c(5, 2, 1);
  std::fill(c.param.begin(), c.param.end(), TypeParam{0});
  run.step(c, 1, 0.01, 1.0);
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(std::abs(c.param[i]), 0.01, 1e-6) << i;
}

// The sums of pieces are added up, in another order than those of the whole: all else is the same.
TYPED_TEST(Lamb, cutting_a_tensor_anywhere_gives_the_same_but_for_the_order_of_sums) {
  const OptimizerRun run(this->plugin_, this->options_);
  const OptimizerCase<TypeParam> start(131, 2, 3);
  OptimizerCase<TypeParam> whole = start;
  for (int t = 1; t <= 3; ++t) run.step(whole, t, 0.01, 0.7);
  for (size_t cut = 0; cut <= 131; ++cut) {
    OptimizerCase<TypeParam> pieces = start;
    for (int t = 1; t <= 3; ++t) run.step(pieces, t, 0.01, 0.7, {cut / 2, cut});
    for (size_t i = 0; i < 131; ++i)
      ASSERT_NEAR(pieces.param[i], whole.param[i], sizeof(TypeParam) == 4 ? 1e-6 : 1e-15) << cut;
  }
}

TYPED_TEST(Lamb, threads_change_no_bit) {
  const OptimizerRun run(this->plugin_, this->options_);
  const OptimizerCase<TypeParam> start(5 * kChunk + 77, 2, 2);
  OptimizerCase<TypeParam> serial = start;
  for (int t = 1; t <= 2; ++t) run.step(serial, t, 0.01, 0.7);
  for (const int threads : {2, 4}) {
    this->host_.set_threads(threads);
    OptimizerCase<TypeParam> parallel = start;
    for (int t = 1; t <= 2; ++t) run.step(parallel, t, 0.01, 0.7);
    EXPECT_TRUE(parallel.same_bits(serial)) << threads;
  }
}

TYPED_TEST(Lamb, measuring_changes_nothing) {
  const OptimizerRun run(this->plugin_, this->options_);
  OptimizerCase<TypeParam> c(1003, 2, 1);
  const OptimizerCase<TypeParam> before = c;
  std::vector<void*> slots = {c.slots[0].data(), c.slots[1].data()};
  std::vector<tenon_update> updates = {test::update_of(test::kDtype<TypeParam>, c.param.size(),
                                                       c.param.data(), c.grads[0].data(), slots.data())};
  const std::vector<double> stats = run.whole_stats(updates, test::scalars_of(1));
  EXPECT_TRUE(c.same_bits(before));
  double squares = 0;
  for (const TypeParam p : c.param) squares += static_cast<double>(p) * p;
  EXPECT_NEAR(stats.at(0), squares, 1e-9 * squares);
}

TEST_F(LambPlugin, declares_its_state_and_statistics) {
  const OptimizerRun run(plugin_, options_);
  const tenon_optimizer_info info = run.info();
  ASSERT_EQ(info.num_slots, 2u);
  EXPECT_STREQ(info.slots[0]->name, "exp_avg");
  EXPECT_STREQ(info.slots[1]->name, "exp_avg_sq");
  EXPECT_EQ(info.num_stats, 2u);
}

TEST_F(LambPlugin, rates_of_decay_are_below_1) {
  options_.set("beta1", 1.0);
  EXPECT_EQ(message_of([&] { OptimizerRun(plugin_, options_); }), "beta1 = 1: must be below 1");
}

}  // namespace
}  // namespace tenon::optimizer
