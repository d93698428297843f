// SGD against a scalar reference written from PyTorch's documentation, and the claim that an element's bits
// depend on that element alone: not on cut, threads or instruction set.
#include <gtest/gtest.h>

#include "optimizer_case.hpp"
#include "sgd_rule.hpp"

namespace tenon::optimizer {
namespace {

using test::LoadedPlugin;
using test::message_of;
using test::MockHost;
using test::OptimizerCase;
using test::OptimizerRun;
using test::OptionValues;

struct Hyper {
  double momentum, weight_decay;
  bool nesterov;
  double grad_scale;
};

const std::vector<Hyper> kHypers = {
    {0, 0, false, 1}, {0, 0.1, false, 0.37}, {0.9, 0.1, false, 0.37}, {0.8, 0, true, 2}};

template <class T>
class Sgd : public testing::Test {
 protected:
  void choose(const Hyper& h) {
    options_.set("momentum", h.momentum).set("weight_decay", h.weight_decay).set("nesterov", h.nesterov);
  }
  MockHost host_;
  LoadedPlugin plugin_{test::plugin_file("optimizer", "sgd"), host_};
  OptionValues options_{plugin_.plugin()};
};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(Sgd, Floats);

constexpr int kSteps = 10;

double learning_rate(int step) { return 0.01 * step; }

size_t slots_of(const Hyper& h) { return h.momentum > 0 ? 1 : 0; }

// Element `i` of the case after kSteps steps, in double; the buffer starts as the first gradient, as in
// PyTorch.
template <class T>
double reference(const OptimizerCase<T>& start, size_t i, const Hyper& h) {
  double p = start.param[i], buffer = 0;
  for (int t = 1; t <= kSteps; ++t) {
    double g = h.grad_scale * start.grads[t - 1][i];
    if (h.weight_decay != 0) g += h.weight_decay * p;
    if (h.momentum != 0) {
      buffer = t == 1 ? g : h.momentum * buffer + g;
      g = h.nesterov ? g + h.momentum * buffer : buffer;
    }
    p -= learning_rate(t) * g;
  }
  return p;
}

TYPED_TEST(Sgd, ten_steps_agree_with_the_double_reference_for_every_size) {
  // Each step rounds a few times values of magnitude up to about 10: 10 steps of 4 ulp.
  const double tolerance = sizeof(TypeParam) == 4 ? 2e-5 : 4e-14;
  for (const Hyper& h : kHypers) {
    this->choose(h);
    const OptimizerRun run(this->plugin_, this->options_);
    for (const size_t count : {0, 1, 2, 3, 7, 15, 16, 17, 33, 1001, 40001}) {
      const OptimizerCase<TypeParam> start(count, slots_of(h), kSteps);
      OptimizerCase<TypeParam> c = start;
      for (int t = 1; t <= kSteps; ++t) run.step(c, t, learning_rate(t), h.grad_scale);
      for (size_t i = 0; i < count; ++i)
        ASSERT_NEAR(c.param[i], reference(start, i, h), tolerance) << i << " of " << count;
    }
  }
}

TYPED_TEST(Sgd, cutting_a_tensor_anywhere_gives_the_same_bits) {
  for (const Hyper& h : kHypers) {
    this->choose(h);
    const OptimizerRun run(this->plugin_, this->options_);
    const OptimizerCase<TypeParam> start(131, slots_of(h), 3);
    OptimizerCase<TypeParam> whole = start;
    for (int t = 1; t <= 3; ++t) run.step(whole, t, 0.01, 0.7);
    for (size_t cut = 0; cut <= 131; ++cut) {
      OptimizerCase<TypeParam> pieces = start;
      for (int t = 1; t <= 3; ++t) run.step(pieces, t, 0.01, 0.7, {cut / 2, cut});
      ASSERT_TRUE(pieces.same_bits(whole)) << cut;
    }
  }
}

TYPED_TEST(Sgd, threads_change_no_bit) {
  this->choose(kHypers[2]);
  const OptimizerRun run(this->plugin_, this->options_);
  const OptimizerCase<TypeParam> start(5 * kChunk + 77, 1, 2);
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

TYPED_TEST(Sgd, instruction_sets_change_no_bit) {
  const OptimizerCase<TypeParam> start(1003, 1, 5);
  const auto after = [&start](Isa isa) {
    OptimizerCase<TypeParam> c = start;
    for (int t = 1; t <= 5; ++t) {
      const SgdConstants<TypeParam> constants({0.9, 0.1, true}, test::scalars_of(t, 0.7, 0.01));
      run_on(isa,
             SgdRule<TypeParam, Momentum::kNesterov>{constants, c.param.data(), c.grads[t - 1].data(),
                                                     c.slots[0].data()},
             c.param.size());
    }
    return c;
  };
  const OptimizerCase<TypeParam> baseline = after(Isa::kBaseline);
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (!supported(isa)) continue;
    EXPECT_TRUE(after(isa).same_bits(baseline)) << static_cast<int>(isa);
  }
  this->choose({0.9, 0.1, true, 0.7});
  const OptimizerRun run(this->plugin_, this->options_);
  OptimizerCase<TypeParam> loaded = start;
  for (int t = 1; t <= 5; ++t) run.step(loaded, t, 0.01, 0.7);
  EXPECT_TRUE(loaded.same_bits(baseline));
}

using SgdPlugin = Sgd<float>;

TEST_F(SgdPlugin, has_state_only_with_momentum) {
  EXPECT_EQ(OptimizerRun(plugin_, options_).info().num_slots, 0u);
  choose({0.9, 0, false, 1});
  const OptimizerRun run(plugin_, options_);
  const tenon_optimizer_info info = run.info();
  ASSERT_EQ(info.num_slots, 1u);
  EXPECT_STREQ(info.slots[0]->name, "momentum");
  EXPECT_EQ(info.slots[0]->dtype, TENON_SLOT_DTYPE_OF_PARAM);
  EXPECT_EQ(info.granule, static_cast<uint32_t>(TENON_GRANULE_ELEMENT));
}

TEST_F(SgdPlugin, nesterov_without_momentum_is_refused) {
  choose({0, 0, true, 1});
  EXPECT_EQ(message_of([&] { OptimizerRun(plugin_, options_); }),
            "nesterov = true with momentum = 0: set momentum above 0");
}

TEST_F(SgdPlugin, other_dtypes_are_refused) {
  const OptimizerRun run(plugin_, options_);
  std::vector<tenon_update> updates = {test::update_of(TENON_F16, 0, nullptr, nullptr, nullptr)};
  EXPECT_EQ(message_of([&] { run.run(updates, test::scalars_of(1)); }),
            "update 0 has dtype 3: parameters must be f32 or f64");
}

TEST_F(SgdPlugin, many_tensors_of_both_dtypes_are_updated_in_one_pass) {
  const OptimizerRun run(plugin_, options_);
  OptimizerCase<float> a(kChunk + 5, 0, 1, 1);
  OptimizerCase<double> b(9, 0, 1, 2);
  OptimizerCase<float> a_alone = a;
  OptimizerCase<double> b_alone = b;
  run.step(a_alone, 1, 0.1, 0.5);
  run.step(b_alone, 1, 0.1, 0.5);
  std::vector<tenon_update> updates = {
      test::update_of(TENON_F32, a.param.size(), a.param.data(), a.grads[0].data(), nullptr),
      test::update_of(TENON_F32, 0, nullptr, nullptr, nullptr),
      test::update_of(TENON_F64, b.param.size(), b.param.data(), b.grads[0].data(), nullptr)};
  run.run(updates, test::scalars_of(1, 0.5));
  EXPECT_TRUE(a.same_bits(a_alone));
  EXPECT_TRUE(b.same_bits(b_alone));
}

}  // namespace
}  // namespace tenon::optimizer
