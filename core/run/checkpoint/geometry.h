// Boxes of tensors and flat ranges inside them. A Slice is the unit that is stored and asked for: the
// elements [flat.start, flat.start + flat.size) of the row-major flattened box. All functions are pure.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::checkpoint {

struct Range {
  int64_t start = 0;
  int64_t size = 0;
  auto operator<=>(const Range&) const = default;
};

using Box = std::vector<Range>;  // one range per dim; empty for a 0-dim tensor, which has one element
using Shape = std::vector<int64_t>;

struct Slice {
  Box box;
  Range flat;
};

inline constexpr size_t kMaxDims = 16;
// Keeps every byte count and every sum of two of them inside int64_t.
inline constexpr int64_t kMaxElements = int64_t{1} << 58;

// Nothing when a dim is negative, there are too many dims, or the product exceeds kMaxElements.
std::optional<int64_t> num_elements(const Shape& shape);
int64_t num_elements(const Box& box);  // of a box inside a valid shape
Box whole_box(const Shape& shape);
Shape sizes_of(const Box& box);
bool inside(const Range& range, int64_t size);
bool inside(const Box& box, const Shape& shape);
// Nothing when the boxes share no element. Both have the same number of dims.
std::optional<Box> intersect(const Box& one, const Box& other);
// The slice as disjoint boxes in tensor coordinates, in row-major order; none when it is empty.
std::vector<Box> pieces(const Slice& slice);
bool overlap(const Slice& one, const Slice& other);
// Copies what both slices share from the densely stored `from` to the densely stored `to`.
void copy_overlap(const Slice& from, const std::byte* source, const Slice& to, std::byte* destination,
                  int64_t element_bytes);
// "[0:4,8:16]"
std::string to_text(const Box& box);

}  // namespace tenon::checkpoint
