// exp, sigmoid, sine and cosine of plugins/kernels/cpu/simd_math.h against libm: as baseline code, and with
// AVX-512.
#define TENON_ISA math_test_isa
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "../../plugins/kernels/cpu/simd_math.h"

namespace tenon::test {
namespace {

namespace isa = kernels::cpu::TENON_ISA;

#if TENON_VECTOR_BYTES == 64
class NeedsAvx512 : public testing::Environment {
  void SetUp() override {
    if (!__builtin_cpu_supports("avx512dq")) GTEST_SKIP() << "no AVX-512 on this machine";
  }
};
testing::Environment* const kNeedsAvx512 = testing::AddGlobalTestEnvironment(new NeedsAvx512);
#endif

template <class T>
T fast_exp(T x) {
  return isa::exp<T>(isa::splat(x))[0];
}

TEST(FastExp, of_float_is_within_1e_7_of_libm) {
  double worst = 0;
  for (double x = -86; x < 88.72; x += 0.00037) {
    const double want = std::exp(static_cast<double>(static_cast<float>(x)));
    worst = std::fmax(worst, std::fabs(fast_exp(static_cast<float>(x)) / want - 1));
  }
  EXPECT_LT(worst, 1.2e-7);  // 2 units in the last place of values near 1
}

TEST(FastExp, of_double_is_within_4e_16_of_libm) {
  double worst = 0;
  for (double x = -707; x < 709.7; x += 0.00337) {
    worst = std::fmax(worst, std::fabs(fast_exp(x) / std::exp(x) - 1));
  }
  EXPECT_LT(worst, 7e-16);  // without fused multiply-add; libm's own error included
}

template <class T>
void expect_limits() {
  constexpr T kInf = std::numeric_limits<T>::infinity();
  EXPECT_EQ(fast_exp<T>(0), 1);
  EXPECT_EQ(fast_exp<T>(-kInf), 0);
  EXPECT_EQ(fast_exp<T>(kInf), kInf);
  EXPECT_EQ(fast_exp<T>(1000), kInf);
  EXPECT_EQ(fast_exp<T>(-1000), 0);
  EXPECT_TRUE(std::isnan(fast_exp<T>(std::numeric_limits<T>::quiet_NaN())));
}

TEST(FastExp, keeps_infinities_and_not_a_number) {
  expect_limits<float>();
  expect_limits<double>();
}

TEST(FastSigmoid, is_within_2e_7_of_libm_and_so_is_its_complement) {
  for (double x = -80; x < 80; x += 0.0131) {
    const isa::Sigmoid<float> f = isa::sigmoid<float>(isa::splat(static_cast<float>(x)));
    const double y = static_cast<double>(static_cast<float>(x));
    EXPECT_NEAR(f.s[0] * (1 + std::exp(-y)), 1, 3e-7) << x;
    EXPECT_NEAR(f.e[0] * f.s[0] * (1 + std::exp(y)), 1, 4e-7) << x;
  }
}

TEST(FastSinCos, is_within_1e_13_of_libm_up_to_a_million) {
  for (double x = -1e6; x < 1e6; x += 37.77) {
    const isa::SinCos f = isa::sincos(isa::splat(x));
    ASSERT_NEAR(f.sin[0], std::sin(x), 1e-15) << x;
    ASSERT_NEAR(f.cos[0], std::cos(x), 1e-15) << x;
  }
}

}  // namespace
}  // namespace tenon::test
