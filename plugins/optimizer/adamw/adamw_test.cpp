// AdamW against a scalar reference written from PyTorch's documentation, and the claim that an element's bits
// depend on that element alone: not on cut, threads or instruction set.
#include <gtest/gtest.h>

#include <cmath>

#include "adamw_rule.hpp"
#include "optimizer_case.hpp"

namespace tenon::optimizer {
namespace {

using test::LoadedPlugin;
using test::message_of;
using test::MockHost;
using test::OptimizerCase;
using test::OptimizerRun;
using test::OptionValues;

template <class T>
class AdamW : public testing::Test {
 protected:
  MockHost host_;
  LoadedPlugin plugin_{test::plugin_file("optimizer", "adamw"), host_};
  OptionValues options_{plugin_.plugin()};
};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(AdamW, Floats);

constexpr int kSteps = 10;

struct Hyper {
  double beta1, beta2, eps, weight_decay, grad_scale;
};

double learning_rate(int step) { return 0.01 * step; }

// Element `i` of the case after kSteps steps, in double.
template <class T>
double reference(const OptimizerCase<T>& start, size_t i, const Hyper& h) {
  double p = start.param[i], m = 0, v = 0;
  for (int t = 1; t <= kSteps; ++t) {
    const double g = h.grad_scale * start.grads[t - 1][i];
    const double lr = learning_rate(t);
    p -= lr * h.weight_decay * p;
    m = h.beta1 * m + (1 - h.beta1) * g;
    v = h.beta2 * v + (1 - h.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(h.beta1, t));
    const double v_hat = v / (1 - std::pow(h.beta2, t));
    p -= lr * m_hat / (std::sqrt(v_hat) + h.eps);
  }
  return p;
}

TYPED_TEST(AdamW, ten_steps_agree_with_the_double_reference_for_every_size) {
  // f32: each step rounds a few times values of magnitude up to about 4: 10 steps of 4 ulp. f64: 1 - 0.999^t
  // cancels three digits, on both sides.
  const double tolerance = sizeof(TypeParam) == 4 ? 1e-5 : 1e-13;
  const std::vector<Hyper> hypers = {
      {0.9, 0.999, 1e-8, 0.01, 1.0}, {0.8, 0.95, 1e-3, 0.5, 0.37}, {0, 0, 1e-6, 0, 2}};
  for (const Hyper& h : hypers) {
    this->options_.set("beta1", h.beta1)
        .set("beta2", h.beta2)
        .set("eps", h.eps)
        .set("weight_decay", h.weight_decay);
    const OptimizerRun run(this->plugin_, this->options_);
    for (const size_t count : {0, 1, 2, 3, 7, 15, 16, 17, 33, 1001, 40001}) {
      const OptimizerCase<TypeParam> start(count, 2, kSteps);
      OptimizerCase<TypeParam> c = start;
      for (int t = 1; t <= kSteps; ++t) run.step(c, t, learning_rate(t), h.grad_scale);
      for (size_t i = 0; i < count; ++i)
        ASSERT_NEAR(c.param[i], reference(start, i, h), tolerance) << i << " of " << count;
    }
  }
}

// Without decay m_hat = g and v_hat = g^2 at step 1, whatever the betas: bias correction undoes the zero
// start.
TYPED_TEST(AdamW, first_step_moves_by_the_learning_rate) {
  this->options_.set("weight_decay", 0.0);
  const OptimizerRun run(this->plugin_, this->options_);
  const OptimizerCase<TypeParam> start(100, 2, 1);
  OptimizerCase<TypeParam> c = start;
  run.step(c, 1, 0.125, 1.0);
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_NEAR(start.param[i] - c.param[i], std::copysign(0.125, start.grads[0][i]), 1e-5);
  }
}

TYPED_TEST(AdamW, zero_gradient_leaves_only_the_decay) {
  this->options_.set("weight_decay", 0.5);
  const OptimizerRun run(this->plugin_, this->options_);
  OptimizerCase<TypeParam> c(5, 2, 1);
  const OptimizerCase<TypeParam> start = c;
  c.grads[0].assign(5, 0);
  run.step(c, 1, 0.25, 1.0);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(c.param[i], start.param[i] * TypeParam(0.875));
}

TYPED_TEST(AdamW, grad_scale_multiplies_the_gradient_first) {
  const OptimizerRun run(this->plugin_, this->options_);
  OptimizerCase<TypeParam> scaled(100, 2, 1);
  OptimizerCase<TypeParam> by_hand = scaled;
  for (TypeParam& g : by_hand.grads[0]) g *= TypeParam(0.25);
  run.step(scaled, 1, 0.1, 0.25);
  run.step(by_hand, 1, 0.1, 1.0);
  EXPECT_TRUE(scaled.same_bits(by_hand));
}

TYPED_TEST(AdamW, cutting_a_tensor_anywhere_gives_the_same_bits) {
  const OptimizerRun run(this->plugin_, this->options_);
  const OptimizerCase<TypeParam> start(131, 2, 3);
  OptimizerCase<TypeParam> whole = start;
  for (int t = 1; t <= 3; ++t) run.step(whole, t, 0.01, 0.7);
  for (size_t cut = 0; cut <= 131; ++cut) {
    OptimizerCase<TypeParam> pieces = start;
    for (int t = 1; t <= 3; ++t) run.step(pieces, t, 0.01, 0.7, {cut / 2, cut});
    ASSERT_TRUE(pieces.same_bits(whole)) << cut;
  }
}

TYPED_TEST(AdamW, threads_change_no_bit) {
  const OptimizerRun run(this->plugin_, this->options_);
  const OptimizerCase<TypeParam> start(5 * kChunk + 77, 2, 2);
  OptimizerCase<TypeParam> serial = start;
  for (int t = 1; t <= 2; ++t) run.step(serial, t, 0.01, 0.7);
  EXPECT_EQ(this->host_.parts_run(), 2 * 6);
  for (const int threads : {2, 4}) {
    this->host_.set_threads(threads);
    OptimizerCase<TypeParam> parallel = start;
    for (int t = 1; t <= 2; ++t) run.step(parallel, t, 0.01, 0.7, {5, 5, kChunk + 3});
    EXPECT_TRUE(parallel.same_bits(serial)) << threads;
  }
}

TYPED_TEST(AdamW, instruction_sets_change_no_bit) {
  const OptimizerCase<TypeParam> start(1003, 2, 5);
  const auto after = [&start](Isa isa) {
    OptimizerCase<TypeParam> c = start;
    for (int t = 1; t <= 5; ++t) {
      const AdamWConstants<TypeParam> constants({0.9, 0.999, 1e-8, 0.01}, test::scalars_of(t, 0.7, 0.01));
      run_on(isa,
             AdamWRule<TypeParam>{constants, c.param.data(), c.grads[t - 1].data(), c.slots[0].data(),
                                  c.slots[1].data()},
             c.param.size());
    }
    return c;
  };
  const OptimizerCase<TypeParam> baseline = after(Isa::kBaseline);
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (!supported(isa)) continue;
    EXPECT_TRUE(after(isa).same_bits(baseline)) << static_cast<int>(isa);
  }
  const OptimizerRun run(this->plugin_, this->options_);
  OptimizerCase<TypeParam> loaded = start;
  for (int t = 1; t <= 5; ++t) run.step(loaded, t, 0.01, 0.7);
  EXPECT_TRUE(loaded.same_bits(baseline));
}

TYPED_TEST(AdamW, a_bad_update_is_refused_before_anything_is_touched) {
  const OptimizerRun run(this->plugin_, this->options_);
  OptimizerCase<TypeParam> c(8, 2, 1);
  const OptimizerCase<TypeParam> start = c;
  void* slots[] = {c.slots[0].data(), c.slots[1].data()};
  const tenon_update good =
      test::update_of(test::kDtype<TypeParam>, 8, c.param.data(), c.grads[0].data(), slots);
  tenon_update bad = good;
  bad.dtype = TENON_BF16;
  std::vector<tenon_update> updates = {good, bad};
  EXPECT_EQ(message_of([&] { run.run(updates, test::scalars_of(1)); }),
            "update 1 has dtype 2: parameters must be f32 or f64");
  updates.pop_back();
  EXPECT_EQ(message_of([&] { run.run(updates, test::scalars_of(0)); }), "step = 0: steps count from 1");
  EXPECT_TRUE(c.same_bits(start));
}

using AdamWPlugin = AdamW<float>;

TEST_F(AdamWPlugin, declares_two_slots_like_the_parameter_cut_by_element) {
  const OptimizerRun run(plugin_, options_);
  const tenon_optimizer_info info = run.info();
  EXPECT_TRUE(TENON_HAS(&info, tenon_optimizer_info, num_stats));
  ASSERT_EQ(info.num_slots, 2u);
  EXPECT_STREQ(info.slots[0]->name, "exp_avg");
  EXPECT_STREQ(info.slots[1]->name, "exp_avg_sq");
  EXPECT_EQ(info.slots[0]->dtype, TENON_SLOT_DTYPE_OF_PARAM);
  EXPECT_EQ(info.slots[1]->dtype, TENON_SLOT_DTYPE_OF_PARAM);
  EXPECT_EQ(info.granule, static_cast<uint32_t>(TENON_GRANULE_ELEMENT));
  EXPECT_EQ(info.num_stats, 0u);
}

TEST_F(AdamWPlugin, betas_of_one_are_refused_by_name) {
  options_.set("beta1", 1.0);
  EXPECT_EQ(message_of([&] { OptimizerRun(plugin_, options_); }), "beta1 = 1: must be below 1");
  options_.set("beta1", 0.9).set("beta2", 1.0);
  EXPECT_EQ(message_of([&] { OptimizerRun(plugin_, options_); }), "beta2 = 1: must be below 1");
}

TEST_F(AdamWPlugin, no_updates_is_nothing_to_do) {
  const OptimizerRun run(plugin_, options_);
  std::vector<tenon_update> none;
  EXPECT_EQ(message_of([&] { run.run(none, test::scalars_of(1)); }), "");
}

TEST_F(AdamWPlugin, works_for_a_host_without_threads) {
  host_.set_parallel_offered(false);
  const LoadedPlugin alone(test::plugin_file("optimizer", "adamw"), host_);
  const OptimizerRun run(alone, options_);
  OptimizerCase<float> c(kChunk + 1, 2, 1);
  run.step(c, 1, 0.1, 1.0);
  EXPECT_EQ(host_.parts_run(), 0);
}

TEST_F(AdamWPlugin, has_no_other_interface) {
  EXPECT_EQ(plugin_.plugin().get_interface("tenon.optimizer/2"), nullptr);
}

TEST(Power, squaring_agrees_with_pow) {
  for (const double base : {0.0, 0.5, 0.9, 0.999}) {
    for (const int64_t n : {0, 1, 2, 3, 10, 1000, 100000})
      EXPECT_NEAR(power(base, n), std::pow(base, n), 1e-13);
  }
}

}  // namespace
}  // namespace tenon::optimizer
