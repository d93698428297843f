// What comm authors get from tenon_sdk/comm: the reduction tree and the checks of operations.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tenon_sdk/comm/op.hpp"
#include "tenon_sdk/comm/reduce.hpp"

namespace tenon::comm {
namespace {

template <class T>
std::vector<T> reduce(uint32_t kind, uint32_t dtype, const std::vector<std::vector<T>>& x) {
  std::vector<const void*> sources;
  for (const std::vector<T>& v : x) sources.push_back(v.data());
  std::vector<T> out(x[0].size());
  void* outs[] = {out.data()};
  find_reducer(kind, dtype)(sources.data(), static_cast<int>(sources.size()), out.size(), outs, 1);
  return out;
}

// Parenthesised by hand from the text of tenon/comm.h.
TEST(Tree, adds_in_the_order_of_the_header) {
  const double a = 1e16, b = 1.0, c = -1e16, d = 3.0, e = 1e-3, f = 7e15, g = -7e15;
  const auto sum = [](std::vector<double> values) {
    std::vector<std::vector<double>> x;
    for (const double v : values) x.push_back({v});
    return reduce<double>(TENON_SUM, TENON_F64, x)[0];
  };
  EXPECT_EQ(sum({a}), a);
  EXPECT_EQ(sum({a, b, c}), (a + b) + c);
  EXPECT_EQ(sum({a, b, c, d}), (a + b) + (c + d));
  EXPECT_EQ(sum({a, b, c, d, e}), ((a + b) + (c + d)) + e);
  EXPECT_EQ(sum({a, b, c, d, e, f}), ((a + b) + (c + d)) + (e + f));
  EXPECT_EQ(sum({a, b, c, d, e, f, g}), ((a + b) + (c + d)) + ((e + f) + g));
  EXPECT_NE(sum({a, b, c, d}), ((a + b) + c) + d) << "the values must tell orders apart";
}

TEST(Tree, does_not_depend_on_how_an_array_is_cut) {
  constexpr size_t kCount = 5000;
  std::vector<std::vector<float>> x(7, std::vector<float>(kCount));
  for (size_t r = 0; r < x.size(); ++r) {
    for (size_t i = 0; i < kCount; ++i)
      x[r][i] = std::ldexp(std::sin(static_cast<float>(i * 7 + r)), static_cast<int>(i % 20));
  }
  const std::vector<float> whole = reduce<float>(TENON_SUM, TENON_F32, x);
  for (const size_t at : {size_t{1}, size_t{1023}, size_t{1024}, size_t{4999}}) {
    std::vector<std::vector<float>> tail;
    for (const std::vector<float>& v : x)
      tail.emplace_back(v.begin() + static_cast<std::ptrdiff_t>(at), v.end());
    const std::vector<float> part = reduce<float>(TENON_SUM, TENON_F32, tail);
    EXPECT_EQ(std::memcmp(part.data(), whole.data() + at, part.size() * sizeof(float)), 0) << at;
  }
}

TEST(Tree, an_output_may_be_any_of_the_sources) {
  for (size_t place = 0; place < 3; ++place) {
    std::vector<std::vector<int64_t>> x = {{1, 2}, {10, 20}, {100, 200}};
    const void* sources[] = {x[0].data(), x[1].data(), x[2].data()};
    void* outs[] = {x[place].data()};
    find_reducer(TENON_SUM, TENON_I64)(sources, 3, 2, outs, 1);
    EXPECT_EQ(x[place], (std::vector<int64_t>{111, 222}));
  }
}

TEST(Tree, maximum_and_minimum_keep_nan_from_any_member) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (size_t where = 0; where < 5; ++where) {
    std::vector<std::vector<float>> x = {{1}, {2}, {3}, {4}, {5}};
    x[where][0] = nan;
    EXPECT_TRUE(std::isnan(reduce<float>(TENON_MAX, TENON_F32, x)[0])) << where;
    EXPECT_TRUE(std::isnan(reduce<float>(TENON_MIN, TENON_F32, x)[0])) << where;
  }
  EXPECT_EQ(reduce<float>(TENON_MAX, TENON_F32, {{1}, {3}, {2}})[0], 3);
  EXPECT_EQ(reduce<float>(TENON_MIN, TENON_F32, {{2}, {3}, {1}})[0], 1);
}

TEST(Tree, integer_sums_wrap) {
  const int32_t most = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(reduce<int32_t>(TENON_SUM, TENON_I32, {{most}, {1}})[0], std::numeric_limits<int32_t>::min());
}

TEST(Tree, offers_no_sum_for_small_types) {
  EXPECT_EQ(find_reducer(TENON_SUM, TENON_U8), nullptr);
  EXPECT_NE(find_reducer(TENON_MAX, TENON_U8), nullptr);
  EXPECT_EQ(find_reducer(TENON_SUM, TENON_F16), nullptr);
}

float from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// The nearest of all 65536 values, ties to the even one; by looking at the two neighbours of the upper half.
uint16_t nearest_bf16(float value) {
  const auto below = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  const auto above = static_cast<uint16_t>(below + 1);
  const double to_below = std::abs(static_cast<double>(value) - from_bf16(below));
  const double to_above = std::abs(static_cast<double>(value) - from_bf16(above));
  if (to_below == to_above) return below % 2 == 0 ? below : above;
  return to_below < to_above ? below : above;
}

TEST(Tree, bf16_is_added_in_f32_and_rounded_once) {
  std::vector<std::vector<uint16_t>> x(3, std::vector<uint16_t>(1000));
  for (size_t r = 0; r < x.size(); ++r) {
    for (size_t i = 0; i < x[r].size(); ++i)
      x[r][i] = nearest_bf16(std::ldexp(std::sin(static_cast<float>(i * 3 + r)), static_cast<int>(i % 9)));
  }
  const std::vector<uint16_t> sum = reduce<uint16_t>(TENON_SUM, TENON_BF16, x);
  int rounded_twice_differs = 0;
  for (size_t i = 0; i < sum.size(); ++i) {
    const float a = from_bf16(x[0][i]), b = from_bf16(x[1][i]), c = from_bf16(x[2][i]);
    ASSERT_EQ(sum[i], nearest_bf16((a + b) + c)) << i;
    if (nearest_bf16(from_bf16(nearest_bf16(a + b)) + c) != sum[i]) ++rounded_twice_differs;
  }
  EXPECT_GT(rounded_twice_differs, 0) << "the values must tell one rounding from two";
  const auto nan = uint16_t{0x7f81};
  EXPECT_TRUE(std::isnan(from_bf16(reduce<uint16_t>(TENON_SUM, TENON_BF16, {{nan}, {0}})[0])));
}

// Every number of members and outs, lengths that leave remainders, every instruction set that is here.
TEST(Tree, every_instruction_set_gives_the_same_bits) {
  constexpr uint64_t kCount = 1037;
  for (const uint32_t dtype : {TENON_F64, TENON_F32, TENON_BF16, TENON_I64, TENON_I32}) {
    const size_t bytes = kCount * dtype_size(dtype);
    std::vector<std::vector<uint16_t>> x(9, std::vector<uint16_t>(bytes / 2));
    for (size_t r = 0; r < x.size();
         ++r) {  // as bf16 or f32 of moderate size, whatever the dtype makes of it
      for (size_t i = 0; i < x[r].size(); ++i)
        x[r][i] = static_cast<uint16_t>(0x3f80 + ((i * 2654435761u + r * 40503u) >> 5) % 0x200);
    }
    for (const uint32_t kind : {TENON_SUM, TENON_MAX, TENON_MIN}) {
      for (const int n : {1, 2, 3, 5, 9}) {
        std::vector<const void*> sources;
        for (int k = 0; k < n; ++k) sources.push_back(x[static_cast<size_t>(k)].data());
        std::vector<std::vector<uint16_t>> results;
        for (const sdk::Isa isa : {sdk::Isa::kBaseline, sdk::Isa::kAvx2, sdk::Isa::kAvx512}) {
          if (!sdk::supported(isa)) continue;
          for (const int num_outs : {1, 2, 3, 9}) {
            std::vector<std::vector<uint16_t>> out(static_cast<size_t>(num_outs),
                                                   std::vector<uint16_t>(bytes / 2));
            std::vector<void*> outs;
            for (std::vector<uint16_t>& o : out) outs.push_back(o.data());
            find_reducer(kind, dtype, isa)(sources.data(), n, kCount, outs.data(), num_outs);
            for (const std::vector<uint16_t>& o : out) results.push_back(o);
          }
        }
        for (const std::vector<uint16_t>& r : results)
          ASSERT_EQ(r, results[0]) << "dtype " << dtype << " kind " << kind << " of " << n;
      }
    }
  }
}

Op make(uint32_t kind, std::vector<uint64_t> counts, int me, int n, int peer = 0) {
  static float src[64], dst[64];
  tenon_comm_op raw{sizeof raw, kind, TENON_SUM, TENON_F32, src, dst, 4, counts.data(), peer, 0};
  return check_op(raw, me, n);
}

TEST(Op, all_to_all_agrees_pair_by_pair) {
  const Op a = make(TENON_COMM_ALL_TO_ALL, {1, 2, 1, 3}, 0, 2);
  EXPECT_TRUE(agree(a, make(TENON_COMM_ALL_TO_ALL, {3, 5, 2, 5}, 1, 2)));
  EXPECT_FALSE(agree(a, make(TENON_COMM_ALL_TO_ALL, {4, 5, 2, 5}, 1, 2)))
      << "it sends 4 where 3 are expected";
  EXPECT_FALSE(agree(a, make(TENON_COMM_ALL_TO_ALL, {3, 5, 1, 5}, 1, 2))) << "it expects 1 where 2 are sent";
}

TEST(Op, permutations_agree_by_their_shift) {
  EXPECT_TRUE(agree(make(TENON_COMM_PERMUTE, {}, 0, 3, 1), make(TENON_COMM_PERMUTE, {}, 2, 3, -2)));
  EXPECT_FALSE(agree(make(TENON_COMM_PERMUTE, {}, 0, 3, 1), make(TENON_COMM_PERMUTE, {}, 1, 3, 2)));
}

TEST(Op, counts_that_overflow_are_refused) {
  EXPECT_THROW(make(TENON_COMM_ALL_GATHER, {UINT64_MAX, 2}, 0, 2), sdk::Failure);
}

}  // namespace
}  // namespace tenon::comm
