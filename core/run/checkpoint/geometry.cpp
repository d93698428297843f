#include "run/checkpoint/geometry.h"

#include <algorithm>
#include <cstring>

namespace tenon::checkpoint {
namespace {

// Elements of one index of dim `dim`.
int64_t row_elements(const Box& box, size_t dim) {
  int64_t product = 1;
  for (size_t d = dim + 1; d < box.size(); ++d) product *= box[d].size;
  return product;
}

// Appends the boxes of [begin, end), counted from the start of `box` with dims before `dim` already fixed.
void append_pieces(Box box, size_t dim, int64_t begin, int64_t end, std::vector<Box>& out) {
  if (begin == end) return;
  if (dim == box.size()) {
    out.push_back(std::move(box));
    return;
  }
  const int64_t row = row_elements(box, dim);
  const Range whole = box[dim];
  const auto descend = [&](int64_t index, int64_t from, int64_t to) {
    Box one_row = box;
    one_row[dim] = {whole.start + index, 1};
    append_pieces(std::move(one_row), dim + 1, from, to, out);
  };
  const int64_t last = end / row;
  int64_t first = begin / row;
  if (first == last) return descend(first, begin % row, end % row);
  if (begin % row != 0) {
    descend(first, begin % row, row);
    ++first;
  }
  if (first < last) {
    Box middle = box;
    middle[dim] = {whole.start + first, last - first};
    out.push_back(std::move(middle));
  }
  if (end % row != 0) descend(last, 0, end % row);
}

// Row-major number of the element at `index` (tensor coordinates) inside the slice's dense storage.
int64_t position(const Slice& slice, const std::vector<int64_t>& index) {
  int64_t at = 0;
  for (size_t d = 0; d < index.size(); ++d) at = at * slice.box[d].size + index[d] - slice.box[d].start;
  return at - slice.flat.start;
}

// How many trailing dims of `piece` are contiguous in both: all of each but the first of them are whole.
size_t first_run_dim(const Box& piece, const Box& one, const Box& other) {
  size_t dim = piece.size();
  while (dim > 0) {
    --dim;
    if (piece[dim].size != one[dim].size || piece[dim].size != other[dim].size) break;
  }
  return dim;
}

// Advances `index` over dims [0, dims) of `piece`; false after the last.
bool advance(std::vector<int64_t>& index, const Box& piece, size_t dims) {
  for (size_t d = dims; d-- > 0;) {
    if (++index[d] < piece[d].start + piece[d].size) return true;
    index[d] = piece[d].start;
  }
  return false;
}

void copy_piece(const Box& piece, const Slice& from, const std::byte* source, const Slice& to,
                std::byte* destination, int64_t element_bytes) {
  const size_t run_dim = first_run_dim(piece, from.box, to.box);
  int64_t run = element_bytes;
  for (size_t d = run_dim; d < piece.size(); ++d) run *= piece[d].size;
  std::vector<int64_t> index;
  for (const Range& range : piece) index.push_back(range.start);
  do {
    std::memcpy(destination + position(to, index) * element_bytes,
                source + position(from, index) * element_bytes, static_cast<size_t>(run));
  } while (advance(index, piece, run_dim));
}

}  // namespace

std::optional<int64_t> num_elements(const Shape& shape) {
  if (shape.size() > kMaxDims) return std::nullopt;
  int64_t product = 1;
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
    // Zeros are left out at first, so that the rest of an empty shape is bounded too.
    if (__builtin_mul_overflow(product, std::max<int64_t>(size, 1), &product) || product > kMaxElements) {
      return std::nullopt;
    }
  }
  return std::find(shape.begin(), shape.end(), 0) != shape.end() ? 0 : product;
}

int64_t num_elements(const Box& box) {
  int64_t product = 1;
  for (const Range& range : box) product *= range.size;
  return product;
}

Box whole_box(const Shape& shape) {
  Box box;
  for (const int64_t size : shape) box.push_back({0, size});
  return box;
}

Shape sizes_of(const Box& box) {
  Shape sizes;
  for (const Range& range : box) sizes.push_back(range.size);
  return sizes;
}

bool inside(const Range& range, int64_t size) {
  return range.start >= 0 && range.size >= 0 && range.start <= size && range.size <= size - range.start;
}

bool inside(const Box& box, const Shape& shape) {
  if (box.size() != shape.size()) return false;
  for (size_t d = 0; d < box.size(); ++d) {
    if (!inside(box[d], shape[d])) return false;
  }
  return true;
}

std::optional<Box> intersect(const Box& one, const Box& other) {
  Box both;
  for (size_t d = 0; d < one.size(); ++d) {
    const int64_t begin = std::max(one[d].start, other[d].start);
    const int64_t end = std::min(one[d].start + one[d].size, other[d].start + other[d].size);
    if (begin >= end) return std::nullopt;
    both.push_back({begin, end - begin});
  }
  return both;
}

std::vector<Box> pieces(const Slice& slice) {
  std::vector<Box> out;
  append_pieces(slice.box, 0, slice.flat.start, slice.flat.start + slice.flat.size, out);
  return out;
}

bool overlap(const Slice& one, const Slice& other) {
  if (one.flat.size == 0 || other.flat.size == 0 || !intersect(one.box, other.box)) return false;
  const std::vector<Box> others = pieces(other);
  for (const Box& piece : pieces(one)) {
    for (const Box& candidate : others) {
      if (intersect(piece, candidate)) return true;
    }
  }
  return false;
}

void copy_overlap(const Slice& from, const std::byte* source, const Slice& to, std::byte* destination,
                  int64_t element_bytes) {
  const std::vector<Box> targets = pieces(to);
  for (const Box& piece : pieces(from)) {
    for (const Box& target : targets) {
      const std::optional<Box> both = intersect(piece, target);
      if (both) copy_piece(*both, from, source, to, destination, element_bytes);
    }
  }
}

std::string to_text(const Box& box) {
  std::string text = "[";
  for (const Range& range : box) {
    if (text.size() > 1) text += ",";
    text += std::to_string(range.start) + ":" + std::to_string(range.start + range.size);
  }
  return text + "]";
}

}  // namespace tenon::checkpoint
