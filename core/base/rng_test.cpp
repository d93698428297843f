// Known answers, accuracy against libm, moments, and the claim everything rests on: a slice equals the whole.
#include "base/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>
#include <numeric>
#include <vector>

namespace tenon {
namespace {

template <class T>
bool same_bits(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

TEST(Philox, matches_the_known_answers_of_random123) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, ~0ull),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822ull),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Uniform, is_the_top_53_bits_of_half_a_block) {
  const PhiloxBlock block = philox4x32({5, 0, 0, 1}, 77);
  const uint64_t first = block[0] | static_cast<uint64_t>(block[1]) << 32;
  const uint64_t second = block[2] | static_cast<uint64_t>(block[3]) << 32;
  EXPECT_EQ(uniform_at(77, 10), static_cast<double>(first >> 11) * 0x1p-53);
  EXPECT_EQ(uniform_at(77, 11), static_cast<double>(second >> 11) * 0x1p-53);
}

// Box-Muller over the same blocks with libm: our logarithm, sine and cosine are right to the last digits.
TEST(Normal, agrees_with_box_muller_computed_by_libm) {
  for (uint64_t pair = 0; pair < 200000; ++pair) {
    const PhiloxBlock b = philox4x32({static_cast<uint32_t>(pair), 0, 0, 2}, 42);
    const double u = static_cast<double>(((b[0] | static_cast<uint64_t>(b[1]) << 32) >> 11) + 1) * 0x1p-53;
    const double v = static_cast<double>((b[2] | static_cast<uint64_t>(b[3]) << 32) >> 11) * 0x1p-53;
    const double radius = std::sqrt(-2 * std::log(u));
    ASSERT_NEAR(normal_at(42, 2 * pair), radius * std::cos(2 * std::numbers::pi * v), 4e-15) << pair;
    ASSERT_NEAR(normal_at(42, 2 * pair + 1), radius * std::sin(2 * std::numbers::pi * v), 4e-15) << pair;
  }
}

// These numbers initialise parameters: a change of one bit changes every run.
TEST(Normal, bits_are_pinned) {
  EXPECT_EQ(normal_at(0, 0), 0x1.a2960f30dd472p-2);
  EXPECT_EQ(normal_at(1337, 1), 0x1.1eaa8d69d6002p-2);
  EXPECT_EQ(normal_at(~0ull, 123456789012ull), 0x1.18b0507e50689p-2);
}

TEST(Normal, moments_are_those_of_the_standard_normal) {
  constexpr int kCount = 1000000;
  std::vector<double> z(kCount);
  fill_normal(9, 0, z, 1.0);
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, neighbours = 0;
  for (int i = 0; i < kCount; ++i) {
    m1 += z[i], m2 += z[i] * z[i], m3 += std::pow(z[i], 3), m4 += std::pow(z[i], 4);
    if (i > 0) neighbours += z[i] * z[i - 1];
  }
  // Five standard errors each: sqrt(1, 2, 15, 96, 1) / 1000.
  EXPECT_NEAR(m1 / kCount, 0, 5 * 1e-3);
  EXPECT_NEAR(m2 / kCount, 1, 5 * 1.42e-3);
  EXPECT_NEAR(m3 / kCount, 0, 5 * 3.88e-3);
  EXPECT_NEAR(m4 / kCount, 3, 5 * 9.80e-3);
  EXPECT_NEAR(neighbours / kCount, 0, 5 * 1e-3);
  EXPECT_LT(*std::max_element(z.begin(), z.end()), 8.58);
}

TEST(Uniform, moments_and_bounds_are_those_of_the_interval) {
  constexpr int kCount = 1000000;
  std::vector<float> u(kCount);
  fill_uniform(9, 0, u, -2.0, 4.0);
  const double mean = std::accumulate(u.begin(), u.end(), 0.0) / kCount;
  double variance = 0;
  for (const float x : u) variance += (x - mean) * (x - mean) / kCount;
  EXPECT_NEAR(mean, 1.0, 5 * std::sqrt(3.0) * 1e-3);
  EXPECT_NEAR(variance, 3.0, 5 * 2.69e-3);
  EXPECT_GE(*std::min_element(u.begin(), u.end()), -2.0f);
  EXPECT_LT(*std::max_element(u.begin(), u.end()), 4.0f);
}

// Near 1 the distance of floats is 2^-24 below and 2^-23 above: rounding alone would give 1 + 2^-23 often.
TEST(Uniform, stays_below_high_when_rounded_to_float) {
  std::vector<float> u(1000);
  fill_uniform(3, 0, u, 1.0, 1.0 + 0x1p-23);
  for (const float x : u) EXPECT_EQ(x, 1.0f);
  fill_uniform(3, 0, u, -0.1, 0.1);  // 0.1f is above 0.1
  for (const float x : u) EXPECT_LT(static_cast<double>(x), 0.1);
}

template <class T>
class Fill : public testing::Test {};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(Fill, Floats);

TYPED_TEST(Fill, every_slice_equals_that_part_of_the_whole) {
  constexpr size_t kCount = 33;
  constexpr int64_t kFirst = (int64_t{1} << 33) - 10;  // blocks cross the border of 32 bits
  std::vector<TypeParam> normal(kCount), uniform(kCount);
  fill_normal(5, kFirst, std::span(normal), 0.02);
  fill_uniform(5, kFirst, std::span(uniform), -1.0, 3.0);
  for (size_t begin = 0; begin <= kCount; ++begin) {
    for (size_t end = begin; end <= kCount; ++end) {
      std::vector<TypeParam> part(end - begin);
      const auto first = kFirst + static_cast<int64_t>(begin);
      fill_normal(5, first, std::span(part), 0.02);
      ASSERT_TRUE(same_bits<TypeParam>(part, std::span(normal).subspan(begin, end - begin)));
      fill_uniform(5, first, std::span(part), -1.0, 3.0);
      ASSERT_TRUE(same_bits<TypeParam>(part, std::span(uniform).subspan(begin, end - begin)));
    }
  }
}

TYPED_TEST(Fill, elements_are_the_numbers_at_their_index) {
  std::vector<TypeParam> out(7);
  fill_normal(8, 3, std::span(out), 0.5);
  for (size_t i = 0; i < out.size(); ++i)
    EXPECT_EQ(out[i], static_cast<TypeParam>(0.5 * normal_at(8, 3 + i)));
  fill_uniform(8, 3, std::span(out), 0.0, 1.0);
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_NEAR(out[i], uniform_at(8, 3 + i), 1e-7);
  }
}

TEST(Fill, keys_and_purposes_give_unrelated_numbers) {
  std::vector<double> a(1000), b(1000), c(1000);
  fill_uniform(1, 0, a, 0.0, 1.0);
  fill_uniform(2, 0, b, 0.0, 1.0);
  fill_normal(1, 0, c, 1.0);
  double ab = 0, ac = 0;
  for (int i = 0; i < 1000; ++i)
    ab += (a[i] - 0.5) * (b[i] - 0.5) * 12, ac += (a[i] - 0.5) * std::sqrt(12.0) * c[i];
  EXPECT_LT(std::abs(ab), 5 * std::sqrt(1000.0));
  EXPECT_LT(std::abs(ac), 5 * std::sqrt(1000.0));
}

TEST(Permutation, is_a_bijection_for_every_small_size_and_around_powers_of_two) {
  std::vector<uint64_t> sizes(300);
  std::iota(sizes.begin(), sizes.end(), 1);
  for (const uint64_t power : {512, 1024, 4096, 65536}) {
    for (const uint64_t n : {power - 1, power, power + 1}) sizes.push_back(n);
  }
  for (const uint64_t n : sizes) {
    for (const uint64_t key : {0ull, 1ull, 0xfedcba9876543210ull}) {
      const Permutation permutation(n, key);
      std::vector<bool> seen(n);
      for (uint64_t i = 0; i < n; ++i) {
        const uint64_t image = permutation(i);
        ASSERT_LT(image, n);
        ASSERT_FALSE(seen[image]) << "n = " << n << ", key = " << key << ", i = " << i;
        seen[image] = true;
      }
    }
  }
}

TEST(Permutation, huge_sizes_stay_inside_and_do_not_collide) {
  for (const uint64_t n : {(1ull << 40) + 1, (1ull << 63) - 1, ~0ull}) {
    const Permutation permutation(n, 7);
    std::vector<uint64_t> images;
    for (uint64_t i = 0; i < 1000; ++i) images.push_back(permutation(i * (n / 1000)));
    EXPECT_LT(*std::max_element(images.begin(), images.end()), n);
    std::sort(images.begin(), images.end());
    EXPECT_EQ(std::adjacent_find(images.begin(), images.end()), images.end());
  }
}

TEST(Permutation, outside_its_range_it_is_the_identity) {
  EXPECT_EQ(Permutation(5, 1)(5), 5u);
  EXPECT_EQ(Permutation(5, 1)(~0ull), ~0ull);
  EXPECT_EQ(Permutation(1, 1)(0), 0u);
}

// All 24 orders of 4 come about equally often over keys (chi-squared, 23 degrees: 99.99 percent below 56).
TEST(Permutation, all_orders_of_a_small_set_are_equally_likely_over_keys) {
  constexpr int kKeys = 24000;
  std::map<std::vector<uint64_t>, int> counts;
  for (int key = 0; key < kKeys; ++key) {
    const Permutation p(4, static_cast<uint64_t>(key));
    ++counts[{p(0), p(1), p(2), p(3)}];
  }
  double chi = 0;
  for (const auto& [order, count] : counts) chi += std::pow(count - kKeys / 24.0, 2) / (kKeys / 24.0);
  EXPECT_EQ(counts.size(), 24u);
  EXPECT_LT(chi, 56.0);
}

// Where element 0 of 1000 goes is uniform, and neighbours do not stay neighbours.
TEST(Permutation, images_are_uniform_and_order_is_lost) {
  constexpr uint64_t kSize = 1000;
  std::array<int, 10> bins{};
  int neighbours = 0;
  for (uint64_t key = 0; key < 10000; ++key) {
    const Permutation p(kSize, key);
    ++bins[p(0) / 100];
    neighbours += p(500) + 1 == p(501);
  }
  double chi = 0;
  for (const int count : bins) chi += std::pow(count - 1000.0, 2) / 1000.0;
  EXPECT_LT(chi, 34.0);  // 9 degrees, 99.99 percent
  EXPECT_LT(neighbours, 30);
}

TEST(Permutation, order_is_pinned) {
  const Permutation p(10, 1337);
  std::vector<uint64_t> order;
  for (uint64_t i = 0; i < 10; ++i) order.push_back(p(i));
  EXPECT_EQ(order, (std::vector<uint64_t>{2, 4, 0, 1, 8, 9, 5, 6, 7, 3}));
}

}  // namespace
}  // namespace tenon
