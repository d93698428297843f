#include "run/output_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "run/device.h"

namespace tenon {
namespace {

Operand operand(Dtype dtype, int64_t count) {
  Operand out;
  out.dtype = dtype;
  out.dims = Extents{count};
  return out;
}

template <class Real>
WatchedOutput watched(std::vector<Real>& memory, Dtype dtype) {
  return {reinterpret_cast<char*>(memory.data()), memory.size() * sizeof(Real), dtype, ""};
}

TEST(OutputWatch, sees_each_element_that_was_not_written) {
  for (const size_t count : {1, 2, 16, 17, 1000}) {
    std::vector<float> a(count, 1);
    std::vector<double> b(count, 2);
    const std::vector<WatchedOutput> outputs{watched(a, Dtype::f32), watched(b, Dtype::f64)};
    EXPECT_FALSE(left_unwritten(outputs)) << count;
    spoil(outputs);
    ASSERT_TRUE(left_unwritten(outputs)) << count;
    EXPECT_EQ(&left_unwritten(outputs)->output, &outputs[0]) << count;
    a.assign(count, 0);
    for (size_t i = 0; i < count; ++i) {
      const auto left = left_unwritten(outputs);
      ASSERT_TRUE(left) << i << " of " << count;
      EXPECT_EQ(&left->output, &outputs[1]);
      EXPECT_EQ(left->element, i);
      b[i] = std::nan("");  // a number or not: it was written
    }
    EXPECT_FALSE(left_unwritten(outputs)) << count;
  }
}

// What a transfer left in the arena comes through a kernel as it was.
TEST(OutputWatch, does_not_take_the_NaN_of_the_arena_for_its_own) {
  std::vector<float> memory(8);
  const std::vector<WatchedOutput> outputs{watched(memory, Dtype::f32)};
  std::memset(memory.data(), kNoNumber, memory.size() * sizeof(float));
  EXPECT_FALSE(left_unwritten(outputs));
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
