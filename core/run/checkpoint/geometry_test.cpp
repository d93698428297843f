// Slices against an element-by-element oracle.
#include "run/checkpoint/geometry.h"

#include <gtest/gtest.h>

#include <random>

namespace tenon::checkpoint {
namespace {

// Global row-major numbers of the elements of a slice, in its order.
std::vector<int64_t> elements_of(const Slice& slice, const Shape& shape) {
  std::vector<int64_t> numbers;
  for (int64_t i = slice.flat.start; i < slice.flat.start + slice.flat.size; ++i) {
    int64_t rest = i, number = 0, stride = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      number += (slice.box[d].start + rest % slice.box[d].size) * stride;
      rest /= slice.box[d].size;
      stride *= shape[d];
    }
    numbers.push_back(number);
  }
  return numbers;
}

Slice random_slice(const Shape& shape, std::mt19937_64& random) {
  Slice slice;
  for (const int64_t size : shape) {
    const int64_t start = static_cast<int64_t>(random() % static_cast<uint64_t>(size));
    slice.box.push_back({start, 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(size - start))});
  }
  const int64_t total = num_elements(slice.box);
  const int64_t start = static_cast<int64_t>(random() % static_cast<uint64_t>(total + 1));
  slice.flat = {start, static_cast<int64_t>(random() % static_cast<uint64_t>(total - start + 1))};
  return slice;
}

Shape random_shape(std::mt19937_64& random) {
  Shape shape;
  for (size_t dims = random() % 5; dims > 0; --dims) shape.push_back(1 + static_cast<int64_t>(random() % 6));
  return shape;
}

TEST(Geometry, PiecesAreTheElementsOfTheSliceInOrder) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 5000; ++trial) {
    const Shape shape = random_shape(random);
    const Slice slice = random_slice(shape, random);
    std::vector<int64_t> numbers;
    for (const Box& piece : pieces(slice)) {
      const auto part = elements_of({piece, {0, num_elements(piece)}}, shape);
      numbers.insert(numbers.end(), part.begin(), part.end());
    }
    ASSERT_EQ(numbers, elements_of(slice, shape));
    ASSERT_LE(pieces(slice).size(), std::max<size_t>(1, 2 * shape.size()));
  }
}

TEST(Geometry, CopyOverlapCopiesWhatBothShareAndNothingElse) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 5000; ++trial) {
    const Shape shape = random_shape(random);
    const Slice from = random_slice(shape, random), to = random_slice(shape, random);
    const std::vector<int64_t> source = elements_of(from, shape), wanted = elements_of(to, shape);
    std::vector<int64_t> destination(wanted.size(), -1), expected = destination;
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (std::find(source.begin(), source.end(), wanted[i]) != source.end()) expected[i] = wanted[i];
    }
    copy_overlap(from, reinterpret_cast<const std::byte*>(source.data()), to,
                 reinterpret_cast<std::byte*>(destination.data()), sizeof(int64_t));
    ASSERT_EQ(destination, expected);
    const bool shares = std::any_of(expected.begin(), expected.end(), [](int64_t n) { return n >= 0; });
    ASSERT_EQ(overlap(from, to), shares);
  }
}

TEST(Geometry, ZeroDimTensorHasOneElement) {
  EXPECT_EQ(num_elements(Shape{}), 1);
  EXPECT_EQ(pieces({{}, {0, 1}}).size(), 1U);
  EXPECT_TRUE(pieces({{}, {0, 0}}).empty());
}

TEST(Geometry, SizesThatDoNotFitAreRefused) {
  EXPECT_FALSE(num_elements(Shape{-1}));
  EXPECT_FALSE(num_elements(Shape{int64_t{1} << 40, int64_t{1} << 40}));
  EXPECT_FALSE(num_elements(Shape{0, int64_t{1} << 40, int64_t{1} << 40}));
  EXPECT_FALSE(num_elements(Shape(kMaxDims + 1, 1)));
  EXPECT_EQ(num_elements(Shape{0, 5}), 0);
  EXPECT_FALSE(inside(Range{INT64_MAX, 1}, 10));
  EXPECT_FALSE(inside(Range{1, INT64_MAX}, 10));
  EXPECT_TRUE(inside(Range{10, 0}, 10));
}

}  // namespace
}  // namespace tenon::checkpoint
