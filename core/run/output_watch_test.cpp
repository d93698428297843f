#include "run/output_watch.h"

#include <gtest/gtest.h>

#include <vector>

namespace tenon {
namespace {

Operand operand(Dtype dtype, int64_t count) {
  Operand out;
  out.dtype = dtype;
  out.dims = Extents{count};
  return out;
}

TEST(OutputWatch, sees_an_output_of_which_nothing_was_written) {
  for (const size_t count : {1, 2, 16, 17, 1000}) {
    std::vector<float> a(count, 1), b(count, 2);
    const std::vector<WatchedOutput> outputs{{reinterpret_cast<char*>(a.data()), count * 4, 0},
                                             {reinterpret_cast<char*>(b.data()), count * 4, 2}};
    EXPECT_EQ(left_unwritten(outputs), nullptr) << count;
    spoil(outputs);
    ASSERT_NE(left_unwritten(outputs), nullptr) << count;
    EXPECT_EQ(left_unwritten(outputs)->index, 0) << count;
    a.assign(count, 0);
    ASSERT_NE(left_unwritten(outputs), nullptr) << count;
    EXPECT_EQ(left_unwritten(outputs)->index, 2) << count;
    b[count - 1] = 0;
    EXPECT_EQ(left_unwritten(outputs), nullptr) << "a part of it is left, which loss or norm will tell";
  }
}

TEST(OutputWatch, leaves_alone_what_a_kernel_reads_too) {
  std::vector<double> memory(12);
  Instr kernel;
  kernel.in = {operand(Dtype::f64, 4)};
  kernel.out = {operand(Dtype::f64, 4), operand(Dtype::i64, 4)};
  const auto at = [&](size_t in, size_t first, size_t second) {
    return std::vector<void*>{&memory[in], &memory[first], &memory[second], nullptr};
  };
  EXPECT_TRUE(is_made_anew(kernel, 0, at(0, 4, 8)));
  EXPECT_FALSE(is_made_anew(kernel, 1, at(0, 4, 8))) << "whole numbers";
  EXPECT_FALSE(is_made_anew(kernel, 0, at(0, 0, 8))) << "in place";
  EXPECT_FALSE(is_made_anew(kernel, 0, at(0, 3, 8))) << "one element of the input";
  EXPECT_FALSE(is_made_anew(kernel, 0, at(7, 4, 8))) << "one element of it";
  EXPECT_FALSE(is_made_anew(kernel, 0, at(0, 6, 8))) << "another output's";
  kernel.accumulate = true;
  EXPECT_FALSE(is_made_anew(kernel, 0, at(0, 4, 8))) << "it adds to it";
}

}  // namespace
}  // namespace tenon
